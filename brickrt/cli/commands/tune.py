"""`brickrt tune`: a plan chosen by running the model in several, and kept for later runs."""

from __future__ import annotations

import math
from dataclasses import replace

from brickrt.cli.inputs.gather import gather
from brickrt.cli.inputs.shapes import assuming, note_assumed
from brickrt.cli.outputs.json_output import to_json
from brickrt.cli.outputs.tune_report import tune_dict, tune_text
from brickrt.cli.requests import InputRequest, TuneRequest
from brickrt.cli.terminal.progress import shown_progress
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.check_inputs import check_inputs
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.stages import first_stage
from brickrt.plan.options import PlanOptions
from brickrt.runtime.engines import choose_engine, cpu_tuner
from brickrt.runtime.execution.execution import Execution
from brickrt.runtime.execution.stage_cache import StageCache
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.thread_count import thread_count


def command(request: TuneRequest) -> str:
    """Tunes the model, part by part where some of its nodes run on the host; gives what is printed of it."""
    if not 0 < request.seconds < math.inf:
        raise BrickError(f"--seconds {request.seconds:g} leaves no time to try anything: give more than 0")
    threads, engine = thread_count(request.threads), choose_engine("cpu")
    with shown_progress() as progress:
        progress("import", 0, 1)
        source = load(request.model)
        feed, assumed = gather(source, InputRequest(random=True, shapes=request.shapes))
        tuner = cpu_tuner(engine.build, threads, request.seconds, again=True, progress=progress)
        tuning = replace(engine, tune=lambda threads, compiling: tuner)
        pipeline = Pipeline(tuning, PlanOptions(exact=request.exact), threads, progress)
        with assuming(assumed):
            values = check_inputs(source, feed.arrays)
            pipeline.execute(StageCache(first_stage(source, frozenset(values))), Execution(values))
    note_assumed(assumed)
    report = tune_dict(
        source.name, {name: array.shape for name, array in feed.arrays.items()}, engine.spec, tuner.reports
    )
    return to_json(report) if request.json else tune_text(report)
