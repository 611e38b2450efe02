"""Parts of a plan that were timed by themselves, and plans put together of the fastest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from brickrt.graph.errors import BrickError
from brickrt.plan.subgraph import Subgraph

Part = frozenset[int]
"""Nodes that are timed together."""
FAILURES = (BrickError, ValueError)
"""What building and running a plan that is tried may raise: the plan is left out."""
LAYER_WAS_FASTER = "layerwise: measured faster than merged"


def same(a: Sequence[Subgraph], b: Sequence[Subgraph]) -> bool:
    """Whether two programs would be the same."""
    one, other = ({decision(s) for s in subgraphs} for subgraphs in (a, b))
    return one == other


def decision(s: Subgraph, places: Mapping[int, int] | None = None) -> Hashable:
    """All of a subgraph that its program depends on, with nodes by their numbers or `places`."""
    members, kernels = (tuple(places[k] for k in ks) if places else ks for ks in (s.members, s.kernels))
    return members, len(s.nodes), s.strategy, s.brick, s.band, s.node_bricks, kernels, s.algorithms


def measured_faster(s: Subgraph) -> Subgraph:
    """A subgraph that was chosen by measuring, against the cost model."""
    return replace(s, why=f"measured faster: {s.why}")


def merged_where_faster(
    layers: Iterable[Subgraph], merged: Mapping[Part, Sequence[Subgraph]], saved: Mapping[Part, float]
) -> tuple[Subgraph, ...]:
    """The layers, merged in those parts that save time so, those that save most first, none sharing nodes."""
    taken: set[int] = set()
    chosen: list[Subgraph] = []
    for part in sorted(saved, key=lambda part: -saved[part]):
        if saved[part] >= 0 and taken.isdisjoint(part):
            taken |= part
            chosen += merged[part]
    chosen += (s for s in layers if taken.isdisjoint(s.nodes))
    return tuple(sorted(chosen, key=lambda s: s.nodes[-1]))  # what reads a subgraph's output has a later one itself


def common_parts(layers: Sequence[Part], subgraphs: Sequence[Subgraph]) -> Iterator[tuple[Part, tuple[int, ...]]]:
    """The smallest parts that hold whole layers and whole subgraphs, each with the numbers of its subgraphs.

    Both cover the same nodes. A layer may be several nodes, and a subgraph less than a layer.
    """
    layer_of = {k: number for number, layer in enumerate(layers) for k in layer}
    joined = list(range(len(layers)))  # by layer, another one of the same part, the first one itself

    def first(layer: int) -> int:
        while joined[layer] != layer:
            layer = joined[layer]
        return layer

    for s in subgraphs:
        touched = sorted({first(layer_of[k]) for k in s.members})
        for layer in touched[1:]:
            joined[layer] = touched[0]
    nodes: dict[int, set[int]] = defaultdict(set)
    numbers: dict[int, list[int]] = defaultdict(list)
    for number, inside in enumerate(layers):
        nodes[first(number)] |= inside
    for number, s in enumerate(subgraphs):
        numbers[first(layer_of[s.nodes[0]])].append(number)
    for layer in nodes:
        yield frozenset(nodes[layer]), tuple(numbers[layer])
