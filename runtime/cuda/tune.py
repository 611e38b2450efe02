"""Decisions that a device itself makes, once per network: what the cost model left open is measured.

Merged subgraphs run as planned, and layer by layer; each product is computed by the library, and by our kernels. What
was faster is taken, part by part; then whole runs decide between that and the two it was put together from. One program
is on the device at a time, so that measuring takes no more memory than the greediest of them (WELDER tunes likewise).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from brickrt.graph.errors import BrickError
from brickrt.graph.ir import Graph
from brickrt.ops import cuda as operators
from brickrt.plan.plan import Plan, make_plan
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.cache.disk_cache import sources_digest
from brickrt.runtime.cuda.program import CudaProgram
from brickrt.runtime.environment import CHECKED, checked

Part = frozenset[int]
"""Nodes that are launched together."""
FAILURES = (BrickError, ValueError)
Build = Callable[[Plan], CudaProgram]


@dataclass(frozen=True)
class TimedPlan:
    """Subgraphs that ran; seconds of the whole, and of parts by themselves; the nodes that the library computed."""

    subgraphs: tuple[Subgraph, ...]
    seconds: float
    parts: dict[Part, float]
    called: frozenset[int]


@dataclass(frozen=True)
class Tuner:
    """See `plan_cache.Tune`. `build` makes the program of a plan; `how` is what the choice depends on beside the plan:
    the way of launching, the library."""

    build: Build
    how: str

    @property
    def name(self) -> str:
        """See `plan_cache.Tune`."""
        return f"{self.how} {_code()}"

    def __call__(self, graph: Graph, plan: Plan) -> tuple[Subgraph, ...] | None:
        """The subgraphs of a plan that was made for "auto", or faster ones; None where that cannot be told now."""
        if checked():
            print(f"brickrt: the plan is taken as modelled: {CHECKED} is set, and nothing is measured", file=sys.stderr)
            return None
        try:
            return _Trials(graph, plan, self.build).best()
        except FAILURES as e:  # others may have the GPU's memory, say
            print(f"brickrt: the plan is taken as modelled, since it could not be measured: {e}", file=sys.stderr)
            return None


@cache
def _code() -> str:
    return sources_digest(Path(__file__).parent, Path(next(iter(operators.__path__))))


class _Trials:
    def __init__(self, graph: Graph, plan: Plan, build: Build) -> None:
        self.graph, self.plan, self.build = graph, plan, build

    def best(self) -> tuple[Subgraph, ...]:
        planned = self.by_library_or_not(self.plan.subgraphs)
        merged = [part for part in planned.parts if len(part) > 1]
        if not merged:
            return planned.subgraphs
        try:
            layered = self.by_library_or_not(tuple(_split(self.plan.subgraphs, self.layers(), merged)), merged)
        except FAILURES as e:  # layers take more memory than what is merged
            whys = (f"{s.why}; layer by layer it does not run: {e}" for s in planned.subgraphs)
            return tuple(replace(s, why=why) for s, why in zip(planned.subgraphs, whys, strict=True))
        found = [planned, layered]
        slower = [part for part in merged if layered.parts[part] < planned.parts[part]]
        if slower and len(slower) < len(merged):
            found.append(self.timed(tuple(_split(planned.subgraphs, layered.subgraphs, slower))))
        return min(found, key=lambda timed: timed.seconds).subgraphs

    def layers(self) -> tuple[Subgraph, ...]:
        options = replace(self.plan.options, strategy="layerwise")
        return make_plan(self.graph, self.plan.device, options).subgraphs

    def by_library_or_not(self, subgraphs: tuple[Subgraph, ...], more: Sequence[Part] = ()) -> TimedPlan:
        """The subgraphs with those products left to our kernels that these compute faster than the library."""
        given = self.timed(subgraphs, more)
        if not given.called:
            return given
        own = self.timed(tuple(_by_kernels(subgraphs, given.called)), more)
        found = [given, own]
        parts = given.parts.keys() - more
        faster = {k for part in parts if own.parts[part] < given.parts[part] for k in part}
        some = given.called & faster
        if some and some != given.called:
            found.append(self.timed(tuple(_by_kernels(subgraphs, some)), more))
        return min(found, key=lambda timed: timed.seconds)

    def timed(self, subgraphs: tuple[Subgraph, ...], more: Iterable[Part] = ()) -> TimedPlan:
        plan = make_plan(self.graph, self.plan.device, self.plan.options, decided=subgraphs)
        program = self.build(plan)
        whole = program.seconds()
        numbers = {k: number for number, subgraph in enumerate(subgraphs) for k in subgraph.nodes}
        parts = [frozenset(k for s in part for k in subgraphs[s].nodes) for part in program.launched_together]
        found = {part: program.seconds({numbers[k] for k in part}) for part in dict.fromkeys((*parts, *more))}
        return TimedPlan(subgraphs, whole, found, program.called)


def _by_kernels(subgraphs: Sequence[Subgraph], nodes: frozenset[int] | set[int]) -> Iterator[Subgraph]:
    for subgraph in subgraphs:
        yield replace(subgraph, kernels=tuple(k for k in subgraph.nodes if k in nodes))


def _split(subgraphs: Sequence[Subgraph], layers: Sequence[Subgraph], parts: Iterable[Part]) -> Iterator[Subgraph]:
    """The subgraphs, but those in `parts` layer by layer."""
    alone = {s.nodes[0]: s for s in layers if len(s.nodes) == 1}
    split = frozenset().union(*parts)
    for subgraph in subgraphs:
        if split.issuperset(subgraph.nodes):
            yield from (replace(alone[k], why="layerwise: measured faster than merged") for k in subgraph.nodes)
        else:
            yield subgraph
