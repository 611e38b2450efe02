"""Figures per subgraph: where the time and the bytes of a run go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from brickrt.dashboard.labels import Labels
from brickrt.dashboard.recording import GraphRun
from brickrt.runtime.analysis.least_time import least_us, least_work, longest
from brickrt.runtime.cpu.calibrate.calibration import measured
from brickrt.runtime.lowering.task_graph import TaskGraph


@dataclass(frozen=True)
class SubgraphFigures:
    """One subgraph, as planned and as it ran.

    `operations` are those of the algorithms that run, `moved_bytes` the tensors and constants that it reads and writes
    outside, each once; of views there are none. `busy_us` is the time of all workers together, `share` its part of all
    busy time, `least_us` the least that it could be: see `runtime/analysis/least_time.py`.
    """

    number: int
    name: str
    nodes: tuple[str, ...]
    strategy: str
    brick: tuple[int, ...]
    delta: float
    rho: float
    tasks: int
    operations: float
    moved_bytes: int
    least_us: float
    why: str
    busy_us: float = 0.0
    share: float = 0.0

    @property
    def gflops(self) -> float:
        """Billions of operations per second of one worker."""
        return self.operations / self.busy_us / 1e3 if self.busy_us else 0.0

    @property
    def gbps(self) -> float:
        """GB/s that one worker moves in and out."""
        return self.moved_bytes / self.busy_us / 1e3 if self.busy_us else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON has them."""
        return asdict(self) | {"gflops": self.gflops, "gbps": self.gbps}


def planned_figures(tasks: TaskGraph, workers: int | None = None) -> list[SubgraphFigures]:
    """Figures of a task graph that has not run: its times are 0. `workers` are as many as cores by default."""
    plan, names, device = tasks.plan, Labels(tasks), tasks.plan.device
    device = measured(device) if device.kind == "cpu" else device  # this processor as it is, not as plans see it
    counts = np.bincount(tasks.task_subgraph[tasks.task_subgraph >= 0], minlength=len(plan.subgraphs))
    cores = min(workers or device.cores, device.cores) if device.kind == "cpu" else device.cores
    busy = cores if device.kind == "cpu" else 1  # of a GPU, launches are timed
    return [
        SubgraphFigures(
            number=k,
            name=names.subgraphs[k],
            nodes=tuple(names.nodes[k]),
            strategy=s.strategy,
            brick=tuple(s.brick),
            delta=s.delta,
            rho=s.rho,
            tasks=int(counts[k]),
            operations=work.operations,
            moved_bytes=work.moved,
            least_us=busy * longest(least_us([work], device, cores)),
            why=s.why,
        )
        for k, (s, work) in enumerate(zip(plan.subgraphs, least_work(tasks), strict=True))
    ]


def subgraph_figures(runs: Sequence[GraphRun]) -> list[SubgraphFigures]:
    """Figures of the subgraphs of one task graph, times as the median over its runs."""
    planned = planned_figures(runs[0].tasks, workers_of(runs[-1]))
    return with_times(planned, np.median([busy_us(run) for run in runs], axis=0))


def workers_of(run: GraphRun) -> int:
    """How many workers a run had; 0 where nothing ran."""
    return int(run.events.worker.max(initial=-1)) + 1


def with_times(planned: Sequence[SubgraphFigures], busy: np.ndarray) -> list[SubgraphFigures]:
    """The figures with measured times: `busy` are microseconds per subgraph."""
    total = float(busy.sum()) or 1.0
    return [replace(s, busy_us=float(us), share=float(us) / total) for s, us in zip(planned, busy, strict=True)]


def busy_us(run: GraphRun) -> np.ndarray:
    """Microseconds per subgraph, of all workers together."""
    e, owner = run.events, run.tasks.task_subgraph
    which = owner[e.task]
    took = (e.end - e.start)[which >= 0] / 1e3
    return np.bincount(which[which >= 0], took, minlength=len(run.tasks.plan.subgraphs))
