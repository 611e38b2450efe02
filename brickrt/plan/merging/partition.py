"""Cuts the graph into subgraphs that may run merged: convex, and with a single output (BrickDL §3.3).

A subgraph grows from its output backwards. A producer joins only when every reader of its result is inside, which makes
the subgraph convex and its output the only tensor that leaves it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Transpose, View
from brickrt.ops.operators.partial_reduce import PartialReduce
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.plan.cost.cost_model import CostModel

NODES_PER_LAYER = 8  # bound on light nodes per heavy one, so that planning stays linear

Choose = Callable[[Sequence[int]], int]


def partition(model: CostModel, max_layers: int, choose: Choose = len) -> list[tuple[int, ...]]:
    """The subgraphs in an order in which they can run, each with its node indices ascending.

    `choose` is given a candidate, output first, in the order in which nodes joined, and tells how many of them to
    keep (at least one): any so many first ones are a valid subgraph.
    """
    taken: set[int] = set()
    subgraphs = []
    for root in reversed(range(len(model.graph.nodes))):
        if root not in taken:
            order = grow(model, root, taken, max_layers)
            kept = order[: choose(order)]
            taken.update(kept)
            subgraphs.append(tuple(sorted(kept)))
    return subgraphs[::-1]


def grow(model: CostModel, root: int, taken: set[int], max_layers: int) -> list[int]:
    """The largest subgraph with output node `root`, in the order in which its nodes join."""
    facts, order, inside = model.facts, [root], {root}
    layers = int(facts[root].heavy)
    ready = [-p for p in _candidates(model, root, root, inside)]
    heapq.heapify(ready)
    while ready and len(order) < NODES_PER_LAYER * max_layers:
        k = -heapq.heappop(ready)
        if k in taken or k in inside or layers + facts[k].heavy > max_layers:
            continue
        layers += facts[k].heavy
        order.append(k)
        inside.add(k)
        for p in _candidates(model, root, k, inside):
            heapq.heappush(ready, -p)
    return order


def is_global(model: CostModel, k: int) -> bool:
    """Whether node `k` reduces over a dimension that bricks cut."""
    op = model.graph.nodes[k].op
    if not isinstance(op, Reduce | Rowwise):
        return False
    rank = model.graph.ins(model.graph.nodes[k])[0].rank
    return op.axes != ((1,) if model.facts[k].image else (rank - 1,))


def stands_alone(model: CostModel, k: int) -> bool:
    """Whether node `k` ends a subgraph on both sides."""
    return isinstance(model.graph.nodes[k].op, View | Transpose | PartialReduce) or is_global(model, k)


def _candidates(model: CostModel, root: int, reader: int, inside: set[int]) -> list[int]:
    """Producers of what `reader` reads that may join now."""
    graph = model.graph
    node = graph.nodes[reader]
    if stands_alone(model, reader):
        return []
    product = isinstance(node.op, MatMul)
    names = node.inputs[:1] if product and node.inputs[0] not in node.inputs[1:] else () if product else node.inputs
    producers = (graph.producers[name] for name in dict.fromkeys(names) if name in graph.producers)
    return [p for p in producers if _may_join(model, root, p, inside, elementwise=product)]


def _may_join(model: CostModel, root: int, k: int, inside: set[int], elementwise: bool) -> bool:
    graph = model.graph
    node, out = graph.nodes[k], graph.nodes[k].output
    if stands_alone(model, k) or out in graph.outputs:
        return False
    if isinstance(node.op, MatMul) and (model.device.kind != "cpu" or not model.streams_both(k)):
        return False  # every brick would stream the constant columns
    readers = graph.consumers[out]
    if not inside.issuperset(readers) or graph.types[out].rank != graph.out(graph.nodes[root]).rank:
        return False
    if elementwise and not isinstance(node.op, Map | Reduce | Rowwise):
        return False
    same_cuts = not isinstance(node.op, Reduce | Rowwise) or model.facts[k].image == model.facts[root].image
    return same_cuts and not any(_spreads(model, k, reader) for reader in readers)


def _spreads(model: CostModel, k: int, reader: int) -> bool:
    """Whether the reader broadcasts node `k`'s result along a dimension that bricks cut: each would recompute it."""
    graph = model.graph
    mine, its = graph.out(graph.nodes[k]).shape, graph.out(graph.nodes[reader]).shape
    if len(its) != len(mine):
        return False
    uncut = 1 if model.facts[reader].image else len(mine) - 1
    return any(a == 1 and b > 1 for axis, (a, b) in enumerate(zip(mine, its)) if axis != uncut)
