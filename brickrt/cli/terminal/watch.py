"""Watched runs: the dashboard while they go on, trace and report afterwards."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from brickrt.cli.files import check_files, write_text
from brickrt.cli.layerwise_traffic import layerwise_traffic
from brickrt.cli.requests import RunRequest
from brickrt.cli.terminal.browser import check_opened, open_page
from brickrt.cli.terminal.text import shapes_text
from brickrt.compare.machine import machine
from brickrt.compare.roofline import Roofline, roofline
from brickrt.dashboard.live.dashboard import Dashboard
from brickrt.dashboard.live.frame_state import FrameState
from brickrt.dashboard.live.frames import RUN_FRAMES
from brickrt.dashboard.live.watched_runs import WatchedRuns
from brickrt.dashboard.recording import Recorder, Together
from brickrt.dashboard.report.node_placement import node_placement
from brickrt.dashboard.report.page import write_report
from brickrt.dashboard.report.trace import write_trace
from brickrt.dashboard.units import size_text
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.runtime.cpu.calibrate.calibration import measured
from brickrt.runtime.events import Observer
from brickrt.runtime.execution.report import Report
from brickrt.runtime.session.runtime import Runtime


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
            placement = node_placement(runtime.source, runtime.plan)
            write_text(wanted.trace, lambda out: write_trace(out, recording, placement, wanted.trace_arrows))
        if wanted.report is not None:
            about = about_run(runtime, told)
            write_text(wanted.report, lambda out: write_report(out, recording.graphs, about))
            if wanted.opened:
                open_page(wanted.report)


def dashboard_of(runs: WatchedRuns) -> Dashboard[FrameState]:
    """The dashboard of some runs, its snapshots in the current folder."""
    return Dashboard(runs.frame_state, runs.stop, Path.cwd(), RUN_FRAMES)


def about_run(runtime: Runtime, told: dict[str, Any]) -> dict[str, Any]:
    """Title, figures and surroundings of a report; `told` is what `run --json` says."""
    plans = runtime.plans
    shapes = shapes_text({name: plan.graph.types[name].shape for plan in plans[:1] for name in plan.graph.inputs})
    return {
        "title": f"{runtime.source.name} on {runtime.device}" + (f": {shapes}" if shapes else ""),
        "summary": _summary(runtime, told),
        "environment": _environment(runtime),
    }


def _summary(runtime: Runtime, told: dict[str, Any]) -> dict[str, str]:
    stats, median = told["stats"], told["latency_ms"]["median"]
    bound = roofline(runtime.plan, measured(runtime.plan.plans[0].device), runtime.threads)
    cards = {
        f"latency, median of {told['runs']}": f"{median:.2f} ms",
        **_limit(runtime, bound, median),
        "peak memory": size_text(told["peak_bytes"]),
        "projected memory": size_text(told["projected_bytes"]),
        "tasks": str(stats["tasks"]),
        "complete first": str(stats["complete_first"]),
        "waits": str(stats["waits"]),
        "revisits": str(stats["revisits"]),
        "recomputed elements": str(stats["recomputed"]),
        "threads": str(runtime.threads),
    }
    found = layerwise_traffic(runtime.plan)
    if found is not None:
        for level, moved in found.level_bytes.items():
            cards[f"modelled beyond {level}; layerwise {size_text(found.layerwise_bytes[level])}"] = size_text(moved)
    if stats["host_nodes"]:
        cards[f"on the host, {len(stats['host_nodes'])} nodes"] = f"{stats['host_ms']:.2f} ms"
    return cards


def _limit(runtime: Runtime, bound: Roofline, median: float) -> dict[str, str]:
    """The least time beside the measured one; what the CPU's speeds say nothing about has none."""
    speed = {"GFLOP/s": f"{bound.operations / median / 1e6:.1f}"}
    if runtime.device != "cpu" or not bound.bound_ms:
        return speed
    least, over = f"{bound.bound_ms:.3g} ms", f"×{median / bound.bound_ms:.2f}"
    return {"least time of what runs": least, "latency over that": over} | speed


def _environment(runtime: Runtime) -> dict[str, str]:
    found = machine(runtime.plan.plans[0].device)
    libraries = ", ".join(f"{name} {version}" for name, version in found["libraries"].items())
    told = {name: str(found[name]) for name in ("brickrt", "commit", "cpu", "python", "system") if found[name]}
    command = shlex.join(["brickrt", *sys.argv[1:]])
    return told | {"libraries": libraries, "strategy": runtime.strategy, "command": command}
