"""`brickrt plan --max-memory` and `--window`: how a model would run in bounded memory."""

from __future__ import annotations

import tempfile
from importlib import import_module
from pathlib import Path

from brickrt.cli.inputs import parse
from brickrt.cli.inputs.shapes import assuming, concrete_shapes, note_assumed
from brickrt.cli.outputs.json_output import Json, to_json
from brickrt.cli.outputs.stream_report import plan_text_of
from brickrt.cli.planning import checked_pipeline, input_types
from brickrt.cli.requests import PlanRequest
from brickrt.cli.terminal.progress import shown_progress
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import SourceGraph, load
from brickrt.graph.uncollected import uncollected
from brickrt.ops.types import TensorType
from brickrt.runtime.files.boxes import PIECE_BYTES
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.stream.resident import peak_bytes
from brickrt.runtime.stream.stream_planning import plan_stream
from brickrt.runtime.stream.stream_report import StreamOptions, check_options, memory_dict, plan_dict
from brickrt.runtime.windows.decision import NO_DECISION
from brickrt.runtime.windows.window_options import window_options
from brickrt.runtime.windows.window_planning import of_any_size, plan_windows
from brickrt.runtime.windows.window_report import window_dict


def command(request: PlanRequest) -> str:
    """What is printed of a run in bands, or on blended windows of an image of the shape that is asked for. Raises
    BrickError for options that do not go together, and where the memory is too little."""
    with shown_progress() as progress, uncollected():
        pipeline = checked_pipeline(request, progress)
        progress("import", 0, 1)
        before, source = peak_bytes(), load(request.model)
        return _planned(request, pipeline, source, before)


def _planned(request: PlanRequest, pipeline: Pipeline, source: SourceGraph, before: int) -> str:
    _check(request)
    windows = request.stream.window is not None
    given = of_any_size(source) if windows and request.shapes else source  # an image may be larger than the input
    shapes, assumed = concrete_shapes(given, parse.named_shapes(request.shapes))
    with assuming(assumed):
        types = input_types(source, shapes)
        asked = request, pipeline, source, types
        told = _windows(*asked) if windows else _bands(*asked, before)
    note_assumed(assumed)
    return to_json(told) if request.json else plan_text_of(told)


def _check(request: PlanRequest) -> None:
    asked = request.stream
    used = "--window" if asked.window is not None else "--max-memory"
    others = {"--compare": request.compare, "--html": request.html, "--output": request.output}
    for option, given in (others | {"--device-spec": request.device_spec != "cpu"}).items():
        if given:
            raise BrickError(f"{option} is of no use with {used}: leave one out")
    if wrong := asked.refusal():
        raise BrickError(wrong)
    check_options(StreamOptions(asked.max_memory, spill=asked.spill, scratch=asked.scratch))


def _bands(
    request: PlanRequest, pipeline: Pipeline, source: SourceGraph, types: dict[str, TensorType], before: int
) -> Json:
    asked = request.stream
    folder = None if asked.spill == "never" else asked.scratch or Path(tempfile.gettempdir())
    read = PIECE_BYTES * len(types)  # of inputs that are .npy files
    planned = plan_stream(
        pipeline,
        source,
        types,
        asked.max_memory,
        reading=lambda _: read,
        spill_into=folder,
        whole=False,
        had_before=before,
    )
    chosen = planned.candidate
    told = plan_dict(chosen.plan, chosen.memory, planned.limit, planned.spilling, planned.transformed)
    return told | {"plan_s": planned.plan_s}


def _windows(request: PlanRequest, pipeline: Pipeline, source: SourceGraph, types: dict[str, TensorType]) -> Json:
    import_module("brickrt.cli.commands.run")  # what a process holds is measured, and is to be what `brickrt run` holds
    asked, image = request.stream, next(iter(types.values()))
    assert asked.window is not None
    options = window_options(asked.window, asked.overlap, asked.blend)
    planned = plan_windows(pipeline, source, image, options, NO_DECISION, asked.max_memory)
    figures = memory_dict(planned.memory, planned.limit) | {"plan_s": planned.plan_s}
    return window_dict(planned.options, planned.windows) | figures
