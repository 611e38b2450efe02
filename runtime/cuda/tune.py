"""Decisions that a device itself makes, once per network: what the cost model left open is measured.

Merged subgraphs run as planned, and layer by layer; so do merges that the cost model puts a little behind the layers.
Each product is computed by the library, and by our kernels. What was faster is taken, part by part; then whole runs
decide between that and those it was put together from. One program is on the device at a time, so that measuring takes
no more memory than the greediest of them (WELDER tunes likewise).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from brickrt.graph.ir import Graph
from brickrt.ops import cuda as operators
from brickrt.plan.plan import Plan, with_subgraphs
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime import tuning
from brickrt.runtime.cache.disk_cache import sources_digest
from brickrt.runtime.cuda.program import CudaProgram
from brickrt.runtime.environment import CHECKED, checked
from brickrt.runtime.tuning.parts import FAILURES, LAYER_WAS_FASTER, Part, measured_faster, merged_where_faster, same
from brickrt.runtime.tuning.variants import bolder, layer_by_layer

Build = Callable[[Plan], CudaProgram]


@dataclass(frozen=True)
class TimedPlan:
    """Subgraphs that ran; seconds of the whole, and of parts by themselves; which of these are launched together though
    they are several nodes; the nodes that the library computed."""

    subgraphs: tuple[Subgraph, ...]
    seconds: float
    parts: dict[Part, float]
    merged: tuple[Part, ...]
    called: frozenset[int]


@dataclass(frozen=True)
class Tuner:
    """See `plan_cache.Tune`. `build` makes the program of a plan; `how` is what the choice depends on beside the plan:
    the way of launching, the library."""

    build: Build
    how: str
    again: bool = False

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
    return sources_digest(Path(__file__).parent, *(Path(next(iter(code.__path__))) for code in (operators, tuning)))


class _Trials:
    def __init__(self, graph: Graph, plan: Plan, build: Build) -> None:
        self.graph, self.plan, self.build = graph, plan, build
        self.notes: list[str] = []  # what did not run, and why

    def best(self) -> tuple[Subgraph, ...]:
        layers_as_planned = all(len(s.nodes) == 1 for s in self.plan.subgraphs)
        bold = self.bold()
        planned = self.by_library_or_not(self.plan.subgraphs, bold.merged if bold and layers_as_planned else ())
        merged = {part: timed for timed in (bold, planned) if timed for part in timed.merged}
        layered = planned if layers_as_planned or not merged else self.layered(planned, tuple(merged))
        found = [timed for timed in (planned, layered, bold) if timed]
        mixed = _mixed(layered, merged) if layered else planned.subgraphs
        if not any(same(mixed, timed.subgraphs) for timed in found):
            found.append(self.timed(mixed))
        fastest = min(found, key=lambda timed: timed.seconds)
        return self.told(_explained(fastest.subgraphs, frozenset().union(*merged) if layered else frozenset()))

    def bold(self) -> TimedPlan | None:
        """The plan that merges more than the cost model thinks worth it; None where there is no more, or it fails."""
        subgraphs = bolder(self.plan)
        more = {s.nodes for s in subgraphs if len(s.nodes) > 1} - {s.nodes for s in self.plan.subgraphs}
        if not more:
            return None
        try:
            told = (measured_faster(s) if s.nodes in more else s for s in subgraphs)
            return self.timed(tuple(told))
        except FAILURES as e:
            self.notes.append(f"with more merged it does not run: {e}")
            return None

    def layered(self, planned: TimedPlan, parts: Sequence[Part]) -> TimedPlan | None:
        """What is merged in the plan layer by layer; None where that fails: layers take more memory."""
        try:
            split = _split(self.plan.subgraphs, layer_by_layer(self.plan), planned.merged)
            return self.by_library_or_not(tuple(split), parts)
        except FAILURES as e:
            self.notes.append(f"layer by layer it does not run: {e}")
            return None

    def told(self, subgraphs: Iterable[Subgraph]) -> tuple[Subgraph, ...]:
        """The subgraphs, each with what did not run."""
        return tuple(replace(s, why="; ".join((s.why, *self.notes))) for s in subgraphs)

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
        program = self.build(with_subgraphs(self.plan, subgraphs))
        whole = program.seconds()
        numbers = {k: number for number, subgraph in enumerate(subgraphs) for k in subgraph.nodes}
        parts = [frozenset(k for s in part for k in subgraphs[s].nodes) for part in program.launched_together]
        found = {part: program.seconds({numbers[k] for k in part}) for part in dict.fromkeys((*parts, *more))}
        merged = tuple(part for part in parts if len(part) > 1)
        return TimedPlan(subgraphs, whole, found, merged, program.called)


def _by_kernels(subgraphs: Sequence[Subgraph], nodes: frozenset[int] | set[int]) -> Iterator[Subgraph]:
    for subgraph in subgraphs:
        yield replace(subgraph, kernels=tuple(k for k in subgraph.nodes if k in nodes))


def _split(subgraphs: Sequence[Subgraph], layers: Sequence[Subgraph], parts: Iterable[Part]) -> Iterator[Subgraph]:
    """The subgraphs, but those in `parts` layer by layer."""
    alone = {s.nodes[0]: s for s in layers if len(s.nodes) == 1}
    split = frozenset().union(*parts)
    for subgraph in subgraphs:
        if split.issuperset(subgraph.nodes):
            yield from (alone[k] for k in subgraph.nodes)
        else:
            yield subgraph


def _mixed(layered: TimedPlan, merged: Mapping[Part, TimedPlan]) -> tuple[Subgraph, ...]:
    """Merges parts that measured no slower so; the rest are layers."""
    saved = {part: layered.parts[part] - timed.parts[part] for part, timed in merged.items()}
    inside = {part: [s for s in timed.subgraphs if part.issuperset(s.nodes)] for part, timed in merged.items()}
    return merged_where_faster(layered.subgraphs, inside, saved)


def _explained(subgraphs: Iterable[Subgraph], merged: frozenset[int]) -> Iterator[Subgraph]:
    """The subgraphs; layers that were merged in a trial say what came of it."""
    for s in subgraphs:
        lost = len(s.nodes) == 1 and merged.issuperset(s.nodes)
        yield replace(s, why=LAYER_WAS_FASTER) if lost else s
