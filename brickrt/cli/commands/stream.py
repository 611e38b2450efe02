"""`brickrt run` from files to files in bounded memory."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

from brickrt.cli.commands.cluster import cluster_run
from brickrt.cli.inputs.gather import FORMATS, named_files
from brickrt.cli.outputs.json_output import to_json
from brickrt.cli.outputs.stream_report import stream_text
from brickrt.cli.requests import EngineRequest, RunRequest, StreamRequest
from brickrt.cli.terminal.interrupts import interruptible
from brickrt.cli.terminal.text import note
from brickrt.cli.terminal.watch_stream import WatchedStream
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.last_step import with_argmax, with_threshold
from brickrt.graph.onnx_import.source import SourceGraph, load
from brickrt.graph.room import available_bytes
from brickrt.ops.types import TensorType
from brickrt.plan.options import PlanOptions
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.files.journal import journal_path
from brickrt.runtime.files.sink import WRITABLE
from brickrt.runtime.files.source import READABLE, is_zarr
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.progress import Progress
from brickrt.runtime.stream.data_limit import data_limit
from brickrt.runtime.stream.stream_files import Pixels, opened_job, source_of
from brickrt.runtime.stream.stream_job import StreamJob
from brickrt.runtime.stream.stream_planning import FREE_SHARE, in_core_bytes, whole_graph
from brickrt.runtime.stream.stream_report import StreamOptions, StreamReport, Watch
from brickrt.runtime.thread_count import thread_count
from brickrt.runtime.windows.decision import Decision
from brickrt.runtime.windows.window_job import WindowJob, opened_windows
from brickrt.runtime.windows.window_options import window_options
from brickrt.runtime.windows.window_report import WindowReport

LARGE = 64 * 2**20  # bytes of an input file from which on it is asked whether a run in core fits
IN_CORE = (".npy", ".npz")  # what runs in core write


def is_asked_for(request: RunRequest) -> bool:
    """Whether options or the kinds of the files say that the run goes band by band."""
    if request.stream.given():
        return True
    output = str(request.output or "")
    return _is_of(output, WRITABLE, IN_CORE) or any(_is_of(file, READABLE, FORMATS) for file in request.inputs.files)


def _is_of(name: str, here: tuple[str, ...], elsewhere: tuple[str, ...]) -> bool:
    lower = name.partition("::")[0].lower()
    return not lower.endswith(elsewhere) and (lower.endswith(here) or is_zarr(lower))


def is_too_large(request: RunRequest) -> bool:
    """Whether an input is large, and inputs, outputs and what is stored between would not fit into the memory that is
    free; False where the run cannot go band by band."""
    if _refusal(request) or request.output is None or not str(request.output).lower().endswith(".npy"):
        return False
    paths = [Path(text if Path(text).exists() else text.partition("=")[2]) for text in request.inputs.files]
    if not any(path.suffix == ".npy" and path.is_file() and path.stat().st_size > LARGE for path in paths):
        return False
    try:
        source = load(request.model)
        types = {}
        for name, text in named_files(source, request.inputs.files).items():
            tensor = source_of(source, name, text, Pixels())
            types[name] = TensorType(tensor.shape, tensor.dtype)
            tensor.close()
        plan = _pipeline(request.engine, None).plan(whole_graph(source, types), measured=False)
    except BrickError:
        return False  # the run in core takes it, or says what is wrong
    return in_core_bytes(plan) > FREE_SHARE * available_bytes()


def command(request: RunRequest) -> str:
    """Runs the model band by band; gives what is printed of it."""
    refused = _refusal(request)
    if refused:
        raise BrickError(refused)
    if request.output is None:
        raise BrickError("--output is missing: a run band by band writes to files, such as --output out.zarr")
    if os.path.realpath(request.output) == os.path.realpath(request.model):
        raise BrickError(f"--output {request.output}: is the model itself: give another path")
    asked = request.stream
    if asked.dask is not None:
        source = load(request.model)
        return cluster_run(request, source, _outputs(source, request.output), _plan_options(request.engine))
    watched = WatchedStream(request)
    with watched.progress() as progress:
        progress("import", 0, 1)
        source = load(request.model)
        outputs = _outputs(source, request.output)
        with _opened(request, _pipeline(request.engine, progress), source, outputs, watched.told) as job:
            report = _run(job, outputs, asked.hard, watched)
    told = {"model": source.name, **report.to_dict(), **watched.figures()}
    watched.write(told)
    return to_json(told) if request.json else stream_text(told)


def _opened(
    request: RunRequest, pipeline: Pipeline, source: SourceGraph, outputs: dict[str, Path], watch: Watch
) -> AbstractContextManager[StreamJob | WindowJob]:
    """The job: in bands, or on blended windows."""
    asked, image = request.stream, request.inputs.image
    inputs = named_files(source, request.inputs.files)
    stored = asked.stored, asked.stored_scale
    options = StreamOptions(asked.max_memory, *stored, asked.resume, None, asked.spill, asked.scratch)
    pixels = Pixels(image.scale, image.mean, image.std, images=True)
    if asked.window is None:
        joined = _with_last_step(source, asked)
        return opened_job(pipeline, joined, inputs, outputs, options, pixels, watch)
    windows = window_options(asked.window, asked.overlap, asked.blend)
    decision = Decision(asked.argmax, asked.threshold)
    return opened_windows(pipeline, source, inputs, windows, options, decision, pixels, watch)


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
    }
    wrong = [option for option, given in other.items() if given]
    if wrong:
        return f"{wrong[0]} is of no use in a run band by band, from files to files: leave it out"
    if engine.device not in ("auto", "cpu"):
        return f"--device {engine.device} runs nothing band by band: use cpu"
    if request.stream.argmax is not None and request.stream.threshold is not None:
        return "--argmax and --threshold exclude each other: leave one out"
    return _windows_refusal(request.stream)


def _windows_refusal(asked: StreamRequest) -> str:
    """Why options of blended windows do not go together."""
    alone = {"--overlap": asked.overlap is not None, "--blend": asked.blend is not None}
    wrong = [option for option, given in alone.items() if given and asked.window is None]
    if wrong:
        return f"{wrong[0]} is of use with --window only: add --window 256, or leave it out"
    if asked.window is not None and asked.dask is not None:
        return "--window is of no use on a cluster: leave it out, or leave out --dask"
    return ""


def _pipeline(engine: EngineRequest, progress: Progress | None) -> Pipeline:
    return Pipeline(choose_engine("cpu"), _plan_options(engine), thread_count(engine.threads), progress)


def _plan_options(engine: EngineRequest) -> PlanOptions:
    try:
        return PlanOptions(engine.strategy, engine.brick, engine.max_layers, engine.exact)
    except ValueError as e:
        raise BrickError(str(e)) from None


def _with_last_step(source: SourceGraph, asked: StreamRequest) -> SourceGraph:
    if asked.argmax is not None:
        return with_argmax(source, asked.argmax)
    return source if asked.threshold is None else with_threshold(source, asked.threshold)


def _outputs(source: SourceGraph, path: Path) -> dict[str, Path]:
    """The file of each output: the one that was given, or of several outputs, others beside it, as `out.NAME.zarr`."""
    names = list(source.outputs)
    if len(names) == 1:
        return {names[0]: path}
    plain = {name: "".join(c if c.isalnum() or c in "-_." else "_" for c in name) for name in names}
    if len(set(plain.values())) < len(names):
        raise BrickError(f"the outputs {', '.join(map(repr, names))} are one file: rename them in the model")
    return {name: path.with_name(f"{path.stem}.{plain[name]}{path.suffix}") for name in names}
