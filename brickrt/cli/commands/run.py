"""`brickrt run`: runs a model on files or random inputs, and reports."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from brickrt.cli.commands import run_files
from brickrt.cli.failure import Failure
from brickrt.cli.inputs.feeds import Feed
from brickrt.cli.inputs.file_lists import InputFiles, input_files, note_skipped
from brickrt.cli.inputs.fitting_sizes import telling_sizes, types_of
from brickrt.cli.inputs.gather import check_images, check_request
from brickrt.cli.inputs.large_files import may_be_large
from brickrt.cli.inputs.presets import preprocessing
from brickrt.cli.inputs.read_ahead import reading_ahead
from brickrt.cli.inputs.shapes import assuming, note_assumed
from brickrt.cli.outputs.json_output import Json, to_json
from brickrt.cli.outputs.run_report import latency_figures, run_dict, run_text
from brickrt.cli.requests import RunRequest
from brickrt.cli.results.decisions import decided
from brickrt.cli.results.result_files import ResultFiles, check_kept, check_results, is_folder
from brickrt.cli.results.top_classes import names_in, top_classes, top_json
from brickrt.cli.terminal.interrupts import interruptible
from brickrt.cli.terminal.logs import shown_logs
from brickrt.cli.terminal.progress import shown_progress
from brickrt.cli.terminal.watch import WatchedRequest, check_watched
from brickrt.compare.difference import compares_nothing, difference
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.runtime.compiled.compiled_source import CompiledSource, model_source
from brickrt.runtime.files.extras import GPU_ARRAYS, leaving_out
from brickrt.runtime.files.formats.file_formats import is_zarr, way_of
from brickrt.runtime.progress import Progress
from brickrt.runtime.session.runtime import Runtime


@dataclass(frozen=True)
class RepeatedRuns:
    """What repeated runs gave: the last one's outputs, wall times, the first run's, which may be a warm-up that is none
    of these, and the time of compiling before and in them."""

    outputs: dict[str, Any]
    run_ms: list[float]
    first_ms: float
    compile_ms: float


def command(request: RunRequest) -> str | Failure:
    """Runs the model as often as asked; gives what is printed of it."""
    with shown_logs(request.verbose), leaving_out(GPU_ARRAYS):
        result = _ran(request)
    note_skipped(request.inputs.files)
    return result


def _ran(request: RunRequest) -> str | Failure:
    check_result_request(request)
    if request.stream.given() or any(map(may_be_large, request.inputs.files)):
        from brickrt.cli.commands import stream  # here: few runs need it, and it takes long to import

        if request.stream.given() or stream.is_too_large(request):
            return stream.command(request)
    check_request(request.inputs)
    files = request.files()
    if request.output is not None and (is_folder(request.output) or is_zarr(request.output)):
        del files["--output"]
    check_watched(request, files)
    with shown_progress(request.quiet) as progress:
        progress("import", 0, 1)
        source = model_source(request.model)
        if isinstance(source, CompiledSource):
            _check_compiled(request)
        source = decided(source, request.result)
        if request.output is not None:
            check_results(request.output, source.outputs, request.result.stored)
        runs = [] if request.inputs.random else input_files(source, request.inputs.files)
        check_images(request.inputs, runs)
    if len(runs) > 1 and request.output is not None and not is_folder(request.output):
        raise BrickError(
            f"--output {request.output}: several inputs have a result each: give a folder, as --output results/"
        )
    check_kept(request, runs, list(source.outputs))
    several = len(runs) > 1 or (request.output is not None and is_folder(request.output))
    if runs and (several or run_files.is_stacked(source, runs)):
        return run_files.command(request, source, runs)
    return _run_once(request, source, runs)


def _check_compiled(request: RunRequest) -> None:
    """Refuses what a compiled file, which does not know its layers, cannot tell."""
    watch = request.watch
    wanted = {
        "--verify": request.verify,
        "--dashboard": watch.dashboard,
        "--report": watch.report,
        "--trace": watch.trace,
    }
    for option, given in wanted.items():
        if given:
            raise BrickError(f"{request.model}: is compiled, without layers: {option} needs the .onnx file")


def check_result_request(request: RunRequest) -> None:
    """Refuses options for results that do not go together."""
    asked = request.result
    if asked.labels is not None and asked.top is None:
        raise BrickError("--labels is of use with --top only: add --top 5, or leave it out")
    if asked.labels is not None:
        names_in(asked.labels)
    if asked.save is not None and (asked.top is not None or request.output is None):
        raise BrickError(f"--save {asked.save} needs --output FILE, and goes without --top")
    if asked.stored is not None and (request.output is None or way_of(request.output) == "archive"):
        raise BrickError("--as is of files with one type: add --output FILE, and none that ends in .npz")
    others = {"json": request.json, "verbose": request.verbose, "dashboard": request.watch.dashboard}
    if request.quiet and (other := next((name for name, given in others.items() if given), None)):
        raise BrickError(f"--{other} and --quiet exclude each other: leave one out")


def _run_once(request: RunRequest, source: SourceGraph, runs: list[InputFiles]) -> str | Failure:
    with shown_progress(request.quiet) as progress:
        watch = WatchedRequest(request, source)
        with reading_ahead(source, request.inputs, runs) as ahead:
            runtime = Runtime(source, progress=progress, watch=watch.observer, **request.engine.arguments())
            arrays, assumed = ahead.types()
            with assuming(assumed), telling_sizes(source, lambda: types_of(arrays)):
                prepared = runtime.prepare(arrays)
            feed, assumed = ahead.read()
        progress("model", 0, 1)
        watch.compiled(prepared)
    with assuming(assumed), interruptible(runtime.cancel):
        ran = _repeated(request, runtime, feed.arrays, watch)
    errors = _errors(Runtime(source, **_as_reference(request)), feed.arrays, ran.outputs) if request.verify else None
    written = _written(request, source, runtime, runs, feed, ran.outputs)
    note_assumed(assumed)
    latency = latency_figures(ran.first_ms, ran.run_ms)
    files, traffic = request.files() | written, request.json or request.verbose or request.watch.report is not None
    report = run_dict(runtime, ran.outputs, latency, ran.compile_ms, errors, files, traffic)
    report["runs"] = len(ran.run_ms)
    if request.result.top is not None:
        report["top"] = _top(request, source, ran.outputs)
    watch.write(runtime, report)
    return _checked(errors or {}, "" if request.quiet else _told(request, report))


def _told(request: RunRequest, report: Json) -> str:
    return to_json(report) if request.json else run_text(report, request.verbose)


def _written(
    request: RunRequest,
    source: SourceGraph,
    runtime: Runtime,
    runs: list[InputFiles],
    feed: Feed,
    outputs: dict[str, Any],
) -> dict[str, Path]:
    """Writes what --output asks for; gives the file, or the first of several, by option."""
    if request.output is None:
        return {}
    image = preprocessing(source, request.inputs.image)
    files = ResultFiles(request.output, runs, request.result, image, runtime.threads)
    return {"--output": files.write(runs[0] if runs else None, feed, outputs)[0]}


def _top(request: RunRequest, source: SourceGraph, outputs: dict[str, Any]) -> list[Json]:
    scores = np.asarray(next(iter(outputs.values())))
    return top_json(top_classes(source, scores, request.result.top or 1, request.result.labels))


def _checked(errors: dict[str, dict[str, float]], text: str) -> str | Failure:
    """The text, or a failure where an output has no finite element, so that comparing it says nothing."""
    wrong = [name for name, found in errors.items() if compares_nothing(found)]
    why = f"--verify compared nothing: no element of {', '.join(map(repr, wrong))} is finite: give other inputs"
    return Failure(text, why) if wrong else text


def _repeated(
    request: RunRequest, runtime: Runtime, arrays: dict[str, np.ndarray], watch: WatchedRequest
) -> RepeatedRuns:
    """All runs. Later stages of a model are compiled in the first one; that is not counted as running. Of repeated runs
    that nobody watches, the first warms up, and is not among the figures."""
    compile_ms, outputs, first = runtime.plan.measured.compile_ms, {}, None
    warms_up = request.repeat > 1 and watch.observer is None
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
            took = max(0.0, elapsed - late)
            if first is not None or not warms_up:
                run_ms.append(took)
            first = took if first is None else first
    return RepeatedRuns(outputs, list(run_ms), first or 0.0, compile_ms)


def _progress_of(request: RunRequest) -> AbstractContextManager[Progress]:
    """Shows the progress of the repeats, unless the dashboard does, or there is one run, which drawing would slow."""
    return shown_progress(request.quiet or request.watch.dashboard or request.repeat == 1)


def _as_reference(request: RunRequest) -> dict[str, Any]:
    return request.engine.arguments() | {"device": "reference", "launch": "auto", "precision": "fp32", "plan": None}


def _errors(reference: Runtime, arrays: dict[str, np.ndarray], outputs: dict[str, Any]) -> dict[str, dict[str, float]]:
    expected = reference.execute(arrays)
    return {name: difference(value, expected[name]) for name, value in outputs.items()}
