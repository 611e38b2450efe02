"""The runs that a dashboard shows: how far they are, and what is known of their plan."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from brickrt.dashboard.live.frame_state import FrameState, TrafficComparison
from brickrt.dashboard.live.run_state import RunState
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.merging.strategy import choose_subgraphs
from brickrt.plan.plan import Plan
from brickrt.runtime.analysis import cache_simulator
from brickrt.runtime.analysis.modelled_traffic import locality
from brickrt.runtime.execution.report import Report
from brickrt.runtime.lowering.lower import lower


@dataclass
class Session:
    """Repeated runs of one model. `latency_ms` grows run by run; `quit` is set when no more are wanted."""

    title: str
    runs: int
    watching: RunState = field(default_factory=RunState)
    locality: TrafficComparison | None = None
    held_bytes: int = 0
    projected_bytes: int = 0
    latency_ms: list[float] = field(default_factory=list)
    quit: bool = False
    began: float = field(default_factory=time.monotonic)
    shown: bool = False

    def planned(self, report: Report) -> None:
        """Takes note of what is known before anything runs, to be shown."""
        self.shown = True
        self.compiled(report)
        self.began = time.monotonic()

    def compiled(self, report: Report) -> None:
        """Takes note of memory and traffic of all stages in a report."""
        self.held_bytes, self.projected_bytes = report.held_bytes, report.projected_bytes
        self.locality = compared(report)

    def stop(self) -> None:
        self.quit = True

    def scene(self) -> FrameState:
        moment = self.watching.moment()
        return FrameState(
            title=self.title,
            run=len(self.latency_ms),
            runs=self.runs,
            seconds=time.monotonic() - self.began,
            moment=moment,
            rows=self.watching.rows(moment.labels) if moment else (),
            held_bytes=self.held_bytes,
            projected_bytes=self.projected_bytes,
            locality=self.locality,
            host=self.watching.host,
            latency_ms=tuple(self.latency_ms),
        )


def compared(report: Report) -> TrafficComparison | None:
    """Modelled figures of the plans beside those of the same layers one by one; None where nothing is planned."""
    now = [locality(program.tasks) for program in report.programs]
    then = [locality(lower(layer_by_layer(program.tasks.plan))) for program in report.programs]
    return TrafficComparison(_reuse(now), _reuse(then), _moved(now), _moved(then)) if now else None


def layer_by_layer(plan: Plan) -> Plan:
    """The same graph with the same layouts and algorithms, no layers merged."""
    options = replace(plan.options, strategy="layerwise")
    model = CostModel(plan.graph, plan.layouts, plan.device, plan.algorithms, plan.options.precision)
    return replace(plan, options=options, subgraphs=tuple(choose_subgraphs(model, options)))


def _reuse(parts: list[cache_simulator.Locality]) -> float:
    """The mean over the reads of all parts."""
    reads = [int(part.reuse_histogram.sum()) for part in parts]
    return sum(n * part.reuse_mean for n, part in zip(reads, parts)) / max(1, sum(reads))


def _moved(parts: list[cache_simulator.Locality]) -> dict[str, int]:
    names = dict.fromkeys(name for part in parts for name in part.levels)
    return {name: sum(part.levels[name].moved for part in parts if name in part.levels) for name in names}
