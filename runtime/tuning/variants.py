"""Plans that may be faster than the one modelled fastest: the next best algorithms, merges and cuts of its layers.

A variant gives all layers of the network another choice at once, so that a few whole runs try all choices of all
layers, each in the network's own conditions: as much in caches as in use, and all cores busy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from brickrt.plan.cost.conv_algorithms import DIRECT, EXACT_ALGORITHMS, constant_bytes, layer_us, possible_algorithms
from brickrt.plan.options import Strategy
from brickrt.plan.plan import Plan, plan_subgraphs, with_subgraphs
from brickrt.plan.subgraph import Subgraph

LOSS = 0.3  # of the layers' time: a merge that is modelled to take no more than that longer is measured
TRIED_TIME_FACTOR = 1.5  # over the best modelled time: algorithms and forced merges that are modelled to take no more
LAYERS = "layer by layer"
RANKS = 3  # next best algorithms of a layer that are tried


@dataclass(frozen=True)
class PlanVariant:
    """Subgraphs to try, and in a few words how they differ from the plan's."""

    name: str
    subgraphs: tuple[Subgraph, ...]


def variants(plan: Plan) -> Iterator[PlanVariant]:
    """What is worth trying, first what is likely to save most. Some may be the same as the plan, or as each other."""
    layers = layer_by_layer(plan)
    ranked = ranked_algorithms(with_subgraphs(plan, layers))
    yield PlanVariant(LAYERS, layers)
    yield _by_rank(plan, ranked, 1)
    yield PlanVariant("more merged", bolder(plan))
    yield PlanVariant("fewer tasks", _in_tasks(plan, plan.device.tasks_per_core // 2))
    yield _by_rank(plan, ranked, 2)
    for strategy in ("padded", "memoized"):
        yield PlanVariant(f"{strategy} bricks", _forced(plan, cast(Strategy, strategy), layers))
    yield PlanVariant("more tasks", _in_tasks(plan, plan.device.tasks_per_core * 2))
    for rank in range(3, RANKS + 1):
        yield _by_rank(plan, ranked, rank)


def bolder(plan: Plan) -> tuple[Subgraph, ...]:
    """The subgraphs of a planner that merges more than the cost model thinks worth it."""
    return plan_subgraphs(plan, replace(plan.device, margin=-LOSS))


def layer_by_layer(plan: Plan) -> tuple[Subgraph, ...]:
    """The nodes one by one."""
    return _layers(plan)


def ranked_algorithms(layers: Plan) -> dict[int, list[str]]:
    """By node, the algorithms that are modelled within reach of the fastest: first the one planned, then the others by
    their time; of nodes that have a choice."""
    graph, device, constants = layers.graph, layers.device, constant_bytes(layers.graph)
    found: dict[int, list[str]] = {}
    for k, node in enumerate(graph.nodes):
        names = possible_algorithms(graph, layers.layouts, device, k, constants)
        names = [name for name in names if name in EXACT_ALGORITHMS or not layers.options.exact]
        times = {name: layer_us(graph, node, device, name, constants) for name in names}
        if times:
            times[DIRECT] = layer_us(graph, node, device, None, constants)
            planned, limit = layers.algorithms.get(k, DIRECT), TRIED_TIME_FACTOR * min(times.values())
            others = (name for name in times if name != planned and times[name] <= limit)
            found[k] = [planned, *sorted(others, key=times.__getitem__)]
    return found


def _by_rank(plan: Plan, ranked: Mapping[int, list[str]], rank: int) -> PlanVariant:
    """Layers by their next best algorithm, those that have so many; the others as planned."""
    names = {k: names[rank if rank < len(names) else 0] for k, names in ranked.items()}
    chosen = {k: name for k, name in names.items() if name != DIRECT}
    return PlanVariant(f"algorithms, choice {rank + 1}", _layers(plan, chosen))


def _layers(plan: Plan, algorithms: Mapping[int, str] | None = None) -> tuple[Subgraph, ...]:
    options = replace(plan.options, strategy="layerwise")
    return tuple(replace(s, why="layerwise") for s in plan_subgraphs(plan, options=options, algorithms=algorithms))


def _in_tasks(plan: Plan, tasks: int) -> tuple[Subgraph, ...]:
    """Layers cut in about so many tasks a core."""
    return plan_subgraphs(plan, replace(plan.device, tasks_per_core=max(1, tasks)))


def _forced(plan: Plan, strategy: Strategy, layers: tuple[Subgraph, ...]) -> tuple[Subgraph, ...]:
    """Merged by one strategy wherever that is modelled within reach, elsewhere layers."""
    alone = {s.nodes[-1]: s for s in layers}
    forced = plan_subgraphs(plan, options=replace(plan.options, strategy=strategy))
    chosen: list[Subgraph] = []
    for s in forced:
        split = [alone[k] for k in s.nodes if k in alone]
        slow = len(s.nodes) > 1 and s.modelled_us > TRIED_TIME_FACTOR * s.layerwise_us
        whole = {k for one in split for k in one.members} == set(s.members)
        chosen += split if slow and whole else [s]
    return tuple(chosen)
