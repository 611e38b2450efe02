"""Figures per subgraph: where the time and the bytes of a run go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from brickrt.dashboard.labels import Labels
from brickrt.dashboard.recording import GraphRun
from brickrt.plan.device.device_spec import host_device
from brickrt.plan.plan import Plan
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.cpu.calibrate.calibration import measured
from brickrt.runtime.lowering.task_graph import TaskGraph


@dataclass(frozen=True)
class SubgraphFigures:
    """One subgraph, as planned and as it ran.

    `busy_us` is the time of all workers together, `share` its part of all busy time. `moved_bytes` are the tensors and
    constants that it reads and writes outside, each once; `roof_us` the least time on all cores: the longer of its
    arithmetic at the peak and of those bytes at the bandwidth of the level that holds the whole network. A Winograd
    layer counts the multiplications of a direct one, and may be under it.
    """

    number: int
    name: str
    nodes: tuple[str, ...]
    strategy: str
    brick: tuple[int, ...]
    delta: float
    rho: float
    tasks: int
    flops: int
    moved_bytes: int
    roof_us: float
    why: str
    busy_us: float = 0.0
    share: float = 0.0

    @property
    def gflops(self) -> float:
        """Billions of operations per second of one worker."""
        return self.flops / self.busy_us / 1e3 if self.busy_us else 0.0

    @property
    def gbps(self) -> float:
        """GB/s that one worker moves in and out."""
        return self.moved_bytes / self.busy_us / 1e3 if self.busy_us else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON has them."""
        return asdict(self) | {"gflops": self.gflops, "gbps": self.gbps}


def planned_figures(tasks: TaskGraph) -> list[SubgraphFigures]:
    """Figures of a task graph that has not run: its times are 0."""
    plan, names = tasks.plan, Labels(tasks)
    counts = np.bincount(tasks.task_subgraph[tasks.task_subgraph >= 0], minlength=len(plan.subgraphs))
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
            flops=s.flops,
            moved_bytes=_moved_bytes(plan, s),
            roof_us=_roof_us(plan, s),
            why=s.why,
        )
        for k, s in enumerate(plan.subgraphs)
    ]


def subgraph_figures(runs: Sequence[GraphRun]) -> list[SubgraphFigures]:
    """Figures of the subgraphs of one task graph, times as the median over its runs."""
    return with_times(planned_figures(runs[0].tasks), np.median([busy_us(run) for run in runs], axis=0))


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


def _moved_bytes(plan: Plan, s: Subgraph) -> int:
    """Bytes of the tensors that a subgraph reads or leaves outside."""
    graph = plan.graph
    inside = {graph.nodes[k].output for k in s.nodes[:-1]}
    touched = dict.fromkeys(name for k in s.nodes for name in (*graph.nodes[k].inputs, graph.nodes[k].output))
    return sum(graph.types[name].nbytes for name in touched if name not in inside)


def _roof_us(plan: Plan, s: Subgraph) -> float:
    """The least time of a subgraph on all cores: of this processor as it was measured, not as plans see it."""
    device = measured(host_device(plan.device.isa)) if plan.device.kind == "cpu" else plan.device
    return max(s.flops / device.peak_gflops, _moved_bytes(plan, s) / device.bandwidth[_level(plan)]) / 1e3


def _level(plan: Plan) -> str:
    """The shared cache if the network's constants stay in it between runs, else memory."""
    level, size = plan.device.shared
    constants = sum(plan.graph.types[name].nbytes for name in plan.graph.constants)
    return level if constants <= plan.device.cache_share * size else "memory"
