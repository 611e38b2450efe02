"""Watched runs: the dashboard while they go on, trace and report afterwards."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from brickrt.cli.files import check_writable, write_text
from brickrt.cli.requests import RunRequest
from brickrt.cli.terminal.text import extents_text, size_text
from brickrt.compare.machine import machine
from brickrt.dashboard.live.dashboard import Dashboard
from brickrt.dashboard.live.watched_runs import Session, compared
from brickrt.dashboard.recording import Recorder, Together
from brickrt.dashboard.report.node_placement import where_nodes_ran
from brickrt.dashboard.report.page import write_report
from brickrt.dashboard.report.trace import write_trace
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.runtime.events import Observer
from brickrt.runtime.execution.report import Report
from brickrt.runtime.session.runtime import Runtime


def check_files(request: RunRequest) -> None:
    """Refuses, before anything runs, files that could not be written."""
    if request.watch.trace_arrows and request.watch.trace is None:
        raise BrickError("--trace-arrows is of use with --trace only: add --trace FILE.json or leave it out")
    files = request.files()
    if len({path.resolve() for path in files.values()}) < len(files):
        raise BrickError(f"{' and '.join(files)} name the same file: give each its own")
    for option, path in files.items():
        if path.resolve() == request.model.resolve():
            raise BrickError(f"{option} {path}: is the model itself: give another path")
        check_writable(path)


class WatchedRequest:
    """What was asked to be watched of the runs of one request."""

    def __init__(self, request: RunRequest, source: SourceGraph) -> None:
        self._request, self._wanted = request, request.watch
        self.session = Session(f"{source.name} · {request.model.name}", request.repeat)
        self._recorder = Recorder()

    @property
    def observer(self) -> Observer | None:
        """None where nobody looks, so that nothing is noted."""
        records = self._wanted.trace is not None or self._wanted.report is not None
        observers: list[Observer] = [self._recorder] if records else []
        observers += [self.session.watching] if self._wanted.dashboard else []
        return Together(observers) if observers else None

    def planned(self, report: Report) -> None:
        if self._wanted.dashboard:
            self.session.planned(report)

    @contextmanager
    def shown(self) -> Iterator[Session]:
        """The session to be told of each run."""
        if not self._wanted.dashboard:
            yield self.session
            return
        with Dashboard(self.session.scene, self.session.stop, Path.cwd()):
            yield self.session

    def write(self, runtime: Runtime, told: dict[str, Any]) -> None:
        """Writes the files asked for; `told` is what `run --json` says."""
        recording, wanted = self._recorder.recording, self._wanted
        if wanted.trace is not None:
            where = where_nodes_ran(runtime.source, runtime.plan)
            write_text(wanted.trace, lambda out: write_trace(out, recording, where, wanted.trace_arrows))
        if wanted.report is not None:
            about = about_run(runtime, told)
            write_text(wanted.report, lambda out: write_report(out, recording.graphs, about))


def about_run(runtime: Runtime, told: dict[str, Any]) -> dict[str, Any]:
    """Title, figures and surroundings of a report."""
    plans = runtime.plans
    inputs = {name: plan.graph.types[name].shape for plan in plans[:1] for name in plan.graph.inputs}
    shapes = ", ".join(f"{name} {extents_text(shape)}" for name, shape in inputs.items())
    return {
        "title": f"{runtime.source.name} on {runtime.device}" + (f": {shapes}" if shapes else ""),
        "summary": summary(runtime, told),
        "environment": environment(runtime),
    }


def summary(runtime: Runtime, told: dict[str, Any]) -> dict[str, str]:
    stats, flops = told["stats"], sum(plan.graph.flops() for plan in runtime.plans)
    median = told["latency_ms"]["median"]
    cards = {
        f"latency, median of {told['runs']}": f"{median:.2f} ms",
        "GFLOP/s": f"{flops / median / 1e6:.1f}",
        "peak memory": size_text(told["peak_bytes"]),
        "projected memory": size_text(told["projected_bytes"]),
        "tasks": str(stats["tasks"]),
        "ready at once": str(stats["complete_first"]),
        "waits": str(stats["waits"]),
        "revisits": str(stats["revisits"]),
        "elements recomputed": str(stats["recomputed"]),
        "threads": str(runtime.threads),
    }
    found = compared(runtime.plan)
    if found is not None:
        for level, moved in found.level_bytes.items():
            cards[f"modelled beyond {level}; layerwise {size_text(found.layerwise_bytes[level])}"] = size_text(moved)
    if stats["host_nodes"]:
        cards[f"on the host, {len(stats['host_nodes'])} nodes"] = f"{stats['host_ms']:.2f} ms"
    return cards


def environment(runtime: Runtime) -> dict[str, str]:
    found = machine(runtime.plan.plans[0].device)
    libraries = ", ".join(f"{name} {version}" for name, version in found["libraries"].items())
    told = {name: str(found[name]) for name in ("brickrt", "commit", "cpu", "python", "system") if found[name]}
    command = shlex.join(["brickrt", *sys.argv[1:]])
    return told | {"libraries": libraries, "strategy": runtime.strategy, "command": command}
