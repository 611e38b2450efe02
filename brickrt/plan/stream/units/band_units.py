"""The subgraphs of a plan as units of a band: cut where a pass ends inside of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from brickrt.graph.ir import Graph
from brickrt.plan.stream.row_axes import RowAxes
from brickrt.plan.subgraph import Subgraph


def as_units(
    graph: Graph, subgraphs: Iterable[Subgraph], axes: RowAxes, single: Collection[int] = ()
) -> list[Subgraph]:
    """The subgraphs that a band runs: node by node memoized ones, those that a pass ends inside of, and those of nodes
    that are asked for one by one (`single`)."""
    units: list[Subgraph] = []
    for s in subgraphs:
        inner = {graph.nodes[k].output for k in s.nodes[:-1]}
        ends = any(
            name in inner and name in axes.axes and (name in axes.rolls or axes.needs_all(graph, graph.nodes[k], i))
            for k in s.nodes
            for i, name in enumerate(graph.nodes[k].inputs)
        )
        apart = s.strategy == "memoized" or ends or any(k in single for k in s.nodes)
        parts = _alone(s) if apart else [s]
        units += [one for part in parts for one in _whole_segments(graph, part, axes)]
    return units


def _whole_segments(graph: Graph, s: Subgraph, axes: RowAxes) -> list[Subgraph]:
    """Partial reductions along the rows on their own: bands begin in the middle of segments."""
    sums = {k: graph.nodes[k].output for k in s.partial_reductions}
    along = [k for k, name in sums.items() if graph.types[name].rank == axes.of(name) + 1]
    found = [replace(s, partial_reductions=tuple(k for k in s.partial_reductions if k not in along))]
    for k in along:
        brick = graph.out(graph.nodes[k]).shape
        own = replace(s, nodes=(k,), strategy="layerwise", brick=brick, band=brick, node_bricks=(brick,))
        found.append(replace(own, partial_reductions=()))
    return found


def _alone(s: Subgraph) -> list[Subgraph]:
    """Each node of a subgraph on its own; the last one keeps its partial reductions."""
    return [
        replace(
            s,
            nodes=(k,),
            strategy="layerwise",
            brick=brick,
            band=brick,
            node_bricks=(brick,),
            partial_reductions=s.partial_reductions if k == s.nodes[-1] else (),
        )
        for k, brick in zip(s.nodes, s.node_bricks, strict=True)
    ]
