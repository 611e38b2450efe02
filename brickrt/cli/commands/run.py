"""`brickrt run`: runs a model on files or random inputs, and reports."""

from __future__ import annotations

import statistics
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from brickrt.cli.commands import stream
from brickrt.cli.inputs.gather import check_request, gather
from brickrt.cli.inputs.shapes import assuming, note_assumed
from brickrt.cli.outputs.arrays import check_output, write_output
from brickrt.cli.outputs.json_output import to_json
from brickrt.cli.outputs.run_report import run_dict, run_text
from brickrt.cli.requests import RunRequest
from brickrt.cli.terminal.interrupts import interruptible
from brickrt.cli.terminal.progress import shown_progress
from brickrt.cli.terminal.watch import WatchedRequest, check_watched
from brickrt.compare.difference import difference
from brickrt.runtime.compiled.compiled_source import source_of
from brickrt.runtime.progress import Progress
from brickrt.runtime.session.runtime import Runtime


@dataclass(frozen=True)
class RepeatedRuns:
    """What repeated runs gave: the last one's outputs, wall times, and the time of compiling before and in them."""

    outputs: dict[str, Any]
    run_ms: list[float]
    compile_ms: float

    def latency(self) -> dict[str, float]:
        """Milliseconds of the first run, and median, least and most of all runs."""
        times = self.run_ms
        return {"first": times[0], "median": statistics.median(times), "min": min(times), "max": max(times)}


def command(request: RunRequest) -> str:
    """Runs the model as often as asked; gives what is printed of it."""
    if stream.is_asked_for(request) or stream.is_too_large(request):
        return stream.command(request)
    check_request(request.inputs)
    check_watched(request)
    with shown_progress() as progress:
        progress("import", 0, 1)
        source = source_of(request.model)
        if request.output is not None:
            check_output(request.output, source.outputs)
        arrays, assumed = gather(source, request.inputs)
        watch = WatchedRequest(request, source)
        runtime = Runtime(source, progress=progress, watch=watch.observer, **request.engine.arguments())
        with assuming(assumed):
            prepared = runtime.prepare(arrays)
        progress("model", 0, 1)
        watch.compiled(prepared)
    with assuming(assumed), interruptible(runtime.cancel):
        ran = _repeated(request, runtime, arrays, watch)
    errors = _errors(Runtime(source, **_as_reference(request)), arrays, ran.outputs) if request.verify else None
    if request.output is not None:
        write_output(request.output, ran.outputs)
    note_assumed(assumed)
    report = run_dict(runtime, ran.outputs, ran.latency(), ran.compile_ms, errors, request.files())
    report["runs"] = len(ran.run_ms)
    watch.write(runtime, report)
    return to_json(report) if request.json else run_text(report)


def _repeated(
    request: RunRequest, runtime: Runtime, arrays: dict[str, np.ndarray], watch: WatchedRequest
) -> RepeatedRuns:
    """All runs. Later stages of a model are compiled in the first one; that is not counted as running."""
    compile_ms, outputs = runtime.plan.measured.compile_ms, {}
    with watch.shown() as watched, _progress_of(request) as progress:
        run_ms = watched.latency_ms
        while len(run_ms) < watched.runs and not (watched.quit and run_ms):
            progress("run", len(run_ms), watched.runs)
            started = time.perf_counter()
            outputs = runtime.execute(arrays)
            elapsed = (time.perf_counter() - started) * 1e3
            late = runtime.plan.measured.compile_ms
            if late:
                watch.compiled(runtime.plan)
            compile_ms += late
            run_ms.append(max(0.0, elapsed - late))
    return RepeatedRuns(outputs, list(run_ms), compile_ms)


def _progress_of(request: RunRequest) -> AbstractContextManager[Progress]:
    """Shows the progress of the repeats, unless the dashboard does, or there is one run, which drawing would slow."""
    quiet = request.watch.dashboard or request.repeat == 1
    return nullcontext(lambda what, done, total: None) if quiet else shown_progress()


def _as_reference(request: RunRequest) -> dict[str, Any]:
    return request.engine.arguments() | {"device": "reference", "launch": "auto", "precision": "fp32", "plan": None}


def _errors(reference: Runtime, arrays: dict[str, np.ndarray], outputs: dict[str, Any]) -> dict[str, dict[str, float]]:
    expected = reference.execute(arrays)
    return {name: difference(value, expected[name]) for name, value in outputs.items()}
