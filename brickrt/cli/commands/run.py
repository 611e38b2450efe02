"""`brickrt run`."""

from __future__ import annotations

import statistics
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from brickrt.cli.inputs.gather import check_request, gather
from brickrt.cli.inputs.shapes import assuming, note_assumed
from brickrt.cli.outputs.arrays import check_output, write_output
from brickrt.cli.outputs.run_report import run_dict, run_json, run_text
from brickrt.cli.requests import RunRequest
from brickrt.cli.terminal.interrupts import interruptible
from brickrt.cli.terminal.progress import shown_progress
from brickrt.cli.terminal.watch import WatchedRequest, check_files
from brickrt.compare.difference import difference
from brickrt.dashboard.live.watched_runs import Session
from brickrt.graph.onnx_import.source import load
from brickrt.runtime.progress import Progress
from brickrt.runtime.session.runtime import Runtime


@dataclass(frozen=True)
class RepeatedRuns:
    """What repeated runs gave: the last one's outputs, wall times, and what compiling took before and in the first."""

    outputs: dict[str, Any]
    run_ms: list[float]
    compile_ms: float

    def latency(self) -> dict[str, float]:
        """Of all runs, the first one too."""
        times = self.run_ms
        return {"first": times[0], "median": statistics.median(times), "min": min(times), "max": max(times)}


def command(request: RunRequest) -> str:
    check_request(request.inputs)
    check_files(request)
    with shown_progress() as progress:
        progress("import", 0, 1)
        source = load(request.model)
        if request.output is not None:
            check_output(request.output, source.outputs)
        arrays, assumed = gather(source, request.inputs)
        watch = WatchedRequest(request, source)
        runtime = Runtime(source, progress=progress, watch=watch.observer, **request.engine.arguments())
        with assuming(assumed):
            prepared = runtime.prepare(arrays)
        progress("model", 0, 1)
        watch.planned(prepared)
    shown = watch.shown(), _progress_of(request)
    with assuming(assumed), interruptible(runtime.cancel), shown[0] as session, shown[1] as progress:
        timed = _timed(runtime, arrays, session, prepared.measured.compile_ms, progress)
    errors = _errors(Runtime(source, **_as_reference(request)), arrays, timed.outputs) if request.verify else None
    if request.output is not None:
        write_output(request.output, timed.outputs)
    note_assumed(assumed)
    report = run_dict(runtime, timed.outputs, timed.latency(), timed.compile_ms, errors, request.files())
    report["runs"] = len(timed.run_ms)
    watch.write(runtime, report)
    return run_json(report) if request.json else run_text(report)


def _progress_of(request: RunRequest) -> AbstractContextManager[Progress]:
    """Of the repeats; the dashboard shows it itself, and drawing would add to the time of a single run."""
    quiet = request.watch.dashboard or request.repeat == 1
    return nullcontext(lambda what, done, total: None) if quiet else shown_progress()


def _timed(
    runtime: Runtime, arrays: dict[str, np.ndarray], session: Session, compile_ms: float, progress: Progress
) -> RepeatedRuns:
    """Later stages of a model compile while it runs first; that is not counted as running."""
    run_ms, outputs = session.latency_ms, {}
    while len(run_ms) < session.runs and not (session.quit and run_ms):
        progress("run", len(run_ms), session.runs)
        started = time.perf_counter()
        outputs = runtime.execute(arrays)
        elapsed = (time.perf_counter() - started) * 1e3
        late = runtime.plan.measured.compile_ms
        if late and session.shown:  # stages that were compiled in this run
            session.compiled(runtime.plan)
        compile_ms += late
        run_ms.append(max(0.0, elapsed - late))
    return RepeatedRuns(outputs, list(run_ms), compile_ms)


def _as_reference(request: RunRequest) -> dict[str, Any]:
    return request.engine.arguments() | {"device": "reference", "launch": "auto", "precision": "fp32"}


def _errors(reference: Runtime, arrays: dict[str, np.ndarray], outputs: dict[str, Any]) -> dict[str, dict[str, float]]:
    expected = reference.execute(arrays)
    return {name: difference(value, expected[name]) for name, value in outputs.items()}
