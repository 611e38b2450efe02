"""Watched runs: the dashboard while they go on, trace and report afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brickrt.cli.files import check_files, write_text
from brickrt.cli.requests import RunRequest
from brickrt.cli.terminal.browser import check_opened, open_page
from brickrt.dashboard.live.watched_runs import WatchedRuns
from brickrt.dashboard.recording import Recorder, Together
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.runtime.events import Observer
from brickrt.runtime.execution.report import Report
from brickrt.runtime.session.runtime import Runtime

if TYPE_CHECKING:
    from brickrt.dashboard.live.dashboard import Dashboard
    from brickrt.dashboard.live.frame_state import FrameState

# What draws and writes is imported where it is asked for: a run that nobody watches starts sooner.


def check_watched(request: RunRequest, files: Mapping[str, Path]) -> None:
    """Refuses, before anything runs, `files` by option that could not be written."""
    if request.watch.trace_arrows and request.watch.trace is None:
        raise BrickError("--trace-arrows is of use with --trace only: add --trace FILE.json or leave it out")
    check_opened(request.watch.opened, request.watch.report, "--report")
    check_files(files, request.model)


class WatchedRequest:
    """What was asked to be watched of the runs of one request."""

    def __init__(self, request: RunRequest, source: SourceGraph) -> None:
        self._wanted = request.watch
        self.watched_runs = WatchedRuns(f"{source.name} · {request.model.name}", request.repeat)
        self._recorder = Recorder()

    @property
    def observer(self) -> Observer | None:
        """What the runtime tells of its runs; None, so that it notes nothing, where no watching was asked for."""
        records = self._wanted.trace is not None or self._wanted.report is not None
        observers: list[Observer] = [self._recorder] if records else []
        observers += [self.watched_runs.run_state] if self._wanted.dashboard else []
        return Together(observers) if observers else None

    def compiled(self, report: Report) -> None:
        """Takes note, between runs, of the stages that are compiled by now."""
        if self._wanted.dashboard:
            from brickrt.cli.layerwise_traffic import layerwise_traffic

            self.watched_runs.compiled(report, layerwise_traffic(report))

    @contextmanager
    def shown(self) -> Iterator[WatchedRuns]:
        """Shows the runs while this lasts, on the dashboard if asked for; the caller appends each run's latency."""
        self.watched_runs.start()
        with dashboard_of(self.watched_runs) if self._wanted.dashboard else nullcontext():
            yield self.watched_runs

    def write(self, runtime: Runtime, told: dict[str, Any]) -> None:
        """Writes the files asked for; `told` is what `run --json` says."""
        recording, wanted = self._recorder.recording, self._wanted
        if wanted.trace is not None:
            from brickrt.dashboard.report.node_placement import node_placement
            from brickrt.dashboard.report.trace import write_trace

            placement = node_placement(runtime.source, runtime.plan)
            write_text(wanted.trace, lambda out: write_trace(out, recording, placement, wanted.trace_arrows))
        if wanted.report is not None:
            from brickrt.cli.terminal.about_run import about_run
            from brickrt.dashboard.report.page import write_report

            about = about_run(runtime, told)
            write_text(wanted.report, lambda out: write_report(out, recording.graphs, about))
            if wanted.opened:
                open_page(wanted.report)


def dashboard_of(runs: WatchedRuns) -> Dashboard[FrameState]:
    """The dashboard of some runs, its snapshots in the current folder."""
    from brickrt.dashboard.live.dashboard import Dashboard
    from brickrt.dashboard.live.frames import RUN_FRAMES

    return Dashboard(runs.frame_state, runs.stop, Path.cwd(), RUN_FRAMES)
