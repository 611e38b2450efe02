"""`brickrt run` from files to files in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from brickrt.cli.inputs.file_lists import input_files, named_files
from brickrt.cli.inputs.fitting_sizes import telling_sizes
from brickrt.cli.inputs.large_files import may_be_large
from brickrt.cli.inputs.presets import preprocessing
from brickrt.cli.outputs.json_output import to_json
from brickrt.cli.outputs.stream_report import stream_text
from brickrt.cli.requests import EngineRequest, RunRequest
from brickrt.cli.results.box_pictures import values_beside, write_pictures
from brickrt.cli.results.decisions import decided, decision_of
from brickrt.cli.results.result_files import check_kept, output_paths
from brickrt.cli.terminal.interrupts import interruptible
from brickrt.cli.terminal.text import BEGINS, note
from brickrt.cli.terminal.watch_stream import WatchedStream
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import SourceGraph, load
from brickrt.graph.room import available_bytes
from brickrt.ops.types import TensorType
from brickrt.plan.options import PlanOptions
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.files.formats.file_formats import WRITTEN_BY_BOX, format_of, way_of
from brickrt.runtime.files.identity import FilesRead
from brickrt.runtime.files.journal import journal_path
from brickrt.runtime.files.model_inputs import Pixels, source_of
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.progress import Progress
from brickrt.runtime.stream.data_limit import data_limit
from brickrt.runtime.stream.resident import peak_bytes
from brickrt.runtime.stream.stream_files import check_none, going_on, opened_job
from brickrt.runtime.stream.stream_job import StreamJob
from brickrt.runtime.stream.stream_planning import FREE_SHARE, in_core_bytes, whole_graph
from brickrt.runtime.stream.stream_report import StreamOptions, StreamReport, Watch
from brickrt.runtime.thread_count import thread_count
from brickrt.runtime.windows.decision import Decision
from brickrt.runtime.windows.window_job import WindowJob, opened_windows
from brickrt.runtime.windows.window_options import window_options
from brickrt.runtime.windows.window_report import WindowReport


def is_too_large(request: RunRequest) -> bool:
    """Whether an input is large, and inputs, outputs and what is stored between would not fit into the memory that is
    free; False where the run cannot go band by band."""
    if _refusal(request) or request.output is None or not format_of(request.output, WRITTEN_BY_BOX):
        return False
    if not any(map(may_be_large, request.inputs.files)):
        return False
    try:
        source = decided(load(request.model), request.result)
        if preprocessing(source, request.inputs.image).resizes:
            return False
        pipeline = _pipeline(request.engine, None)
        types = _types(source, named_files(source, request.inputs.files))
        plan = pipeline.plan(whole_graph(source, types, pipeline.engine.spec), measured=False)
    except BrickError:
        return False  # the run in core takes it, or says what is wrong
    return in_core_bytes(plan) > FREE_SHARE * available_bytes()


def _types(source: SourceGraph, files: dict[str, str]) -> dict[str, TensorType]:
    """What the files are to the model. Raises BrickError where they do not fit."""
    types = {}
    for name, text in files.items():
        tensor = source_of(source, name, text, Pixels())
        types[name] = TensorType(tensor.shape, tensor.dtype)
        tensor.close()
    return types


def command(request: RunRequest) -> str:
    """Runs the model band by band; gives what is printed of it."""
    refused = _refusal(request)
    if refused:
        raise BrickError(refused)
    if request.output is None:
        raise BrickError("--output is missing: a run band by band writes to files, such as --output out.zarr")
    FilesRead([request.model]).check("--output", Path(request.output), "the model itself")
    asked = request.stream
    if asked.dask is not None:
        from brickrt.cli.commands.cluster import cluster_run  # here: few runs need it

        source = load(request.model)
        paths = output_paths(list(source.outputs), Path(request.output))
        check_kept(request, input_files(source, request.inputs.files), list(source.outputs))
        return cluster_run(request, source, paths, _plan_options(request.engine))
    watched = WatchedStream(request)
    with watched.progress() as progress:
        progress("import", 0, 1)
        before, source = peak_bytes(), load(request.model)
        asked_for = output_paths(list(source.outputs), Path(request.output))
        outputs = values_beside(asked_for, request.result)
        if asked.resume and not journal_path(next(iter(outputs.values()))).exists():
            check_none(asked_for)  # pictures, too, whose values are there no more
        with _opened(request, _pipeline(request.engine, progress), source, outputs, watched.told, before) as job:
            if asked.resume and not job.options.resume:
                note(BEGINS)
            report = _run(job, outputs, asked.hard, watched)
        image = preprocessing(source, request.inputs.image)
        write_pictures(asked_for, request.result, image, thread_count(request.engine.threads))
    told = {"model": source.name, **report.to_dict(), **watched.figures()}
    if outputs != asked_for:
        told["outputs"] = {name: str(path) for name, path in asked_for.items()}
    watched.write(told)
    return "" if request.quiet else to_json(told) if request.json else stream_text(told)


def _opened(
    request: RunRequest, pipeline: Pipeline, source: SourceGraph, outputs: dict[str, Path], watch: Watch, before: int
) -> AbstractContextManager[StreamJob | WindowJob]:
    """The job: in bands, or on blended windows. The process had at most so many bytes before the model was loaded."""
    asked, result = request.stream, request.result
    inputs = _files(source, request)
    pictures = way_of(request.output or "") == "picture"  # whose values are converted in the end
    stored = (None, None) if pictures else (result.stored, result.stored_scale)
    options = StreamOptions(
        asked.max_memory, *stored, asked.resume, None, asked.spill, asked.scratch, had_before=before
    )
    options = going_on(options, outputs)
    pixels = _pixels(source, request)
    if asked.window is None:
        joined = decided(source, result)
        if joined is not source:
            source.initializers.clear()  # which the joined model has, and gives up
        return _opened_bands(joined, inputs, opened_job(pipeline, joined, inputs, outputs, options, pixels, watch))
    windows = window_options(asked.window, asked.overlap, asked.blend)
    decision = Decision(*decision_of(source, result))
    return opened_windows(pipeline, source, inputs, windows, options, decision, pixels, watch)


@contextmanager
def _opened_bands(
    source: SourceGraph, inputs: dict[str, str], opened: AbstractContextManager[StreamJob]
) -> Iterator[StreamJob]:
    """The job; where the network does not take images of this size, the error says which it takes."""
    with telling_sizes(source, lambda: _types(source, inputs), ""), opened as job:
        yield job


def _files(source: SourceGraph, request: RunRequest) -> dict[str, str]:
    """The file of each input. Raises BrickError where several are given, or one would be written over."""
    runs = input_files(source, request.inputs.files)
    check_kept(request, runs, list(source.outputs))
    if len(runs) > 1:
        raise BrickError("a run in bands or windows takes one file for each input: leave the others out")
    found = {name: file for run in runs for name, file in run.files.items() if name is not None}
    return found or named_files(source, request.inputs.files)


def _pixels(source: SourceGraph, request: RunRequest) -> Pixels:
    """What is done to the values of inputs. Raises BrickError for presets that change an image's size."""
    asked = preprocessing(source, request.inputs.image)
    if asked.resizes:
        raise BrickError(f"--preset {request.inputs.image.preset} resizes images, which no run band by band does")
    if asked.swapped:
        raise BrickError("the model takes blue, green, red, which no run band by band does: leave out --max-memory")
    return asked.pixels()


def _run(
    job: StreamJob | WindowJob, outputs: dict[str, Path], hard: bool, watched: WatchedStream
) -> StreamReport | WindowReport:
    """The run; where Ctrl-C ends it, a line says how to go on."""
    try:
        limit = job.limit if hard else None
        with interruptible(job.cancel), data_limit(limit, job.pipeline.threads), watched.shown(job):
            return job.run(outputs)
    except KeyboardInterrupt:
        if journal_path(next(iter(outputs.values()))).exists():
            whole = f"{job.all_windows} windows" if isinstance(job, WindowJob) else f"{job.all_bands} bands"
            note(f"{job.finished} of {whole} are finished and kept: the same command with --resume goes on with them")
        raise


def _refusal(request: RunRequest) -> str:
    """Why a request cannot go band by band."""
    engine, inputs, watch = request.engine, request.inputs, request.watch
    other = {
        "--random": inputs.random,
        "--seed": inputs.seed is not None,
        "--shape": inputs.shapes,
        "--layout": inputs.image.layout,
        "--resize": inputs.image.resize,
        "--repeat": request.repeat != 1,
        "--verify": request.verify,
        "--trace": watch.trace,
        "--plan": engine.plan,
        "--precision": engine.precision != "fp32",
        "--launch": engine.launch != "auto",
        "--top": request.result.top is not None,
        f"--save {request.result.save}": request.result.save not in (None, "labels"),
    }
    wrong = [option for option, given in other.items() if given]
    if wrong:
        return f"{wrong[0]} is of no use in a run band by band, from files to files: leave it out"
    if engine.device not in ("auto", "cpu"):
        return f"--device {engine.device} runs nothing band by band: use cpu"
    if request.result.argmax is not None and request.result.threshold is not None:
        return "--argmax and --threshold exclude each other: leave one out"
    return request.stream.refusal()


def _pipeline(engine: EngineRequest, progress: Progress | None) -> Pipeline:
    return Pipeline(choose_engine("cpu"), _plan_options(engine), thread_count(engine.threads), progress)


def _plan_options(engine: EngineRequest) -> PlanOptions:
    try:
        return PlanOptions(engine.strategy, engine.brick, engine.max_layers, engine.exact, rules=engine.rules)
    except ValueError as e:
        raise BrickError(str(e)) from None
