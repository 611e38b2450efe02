"""Cuts the graph into subgraphs that may run merged: convex, and with a single output (BrickDL §3.3).

A subgraph grows from its output backwards. A producer joins only when every reader of its result is inside, which makes
the subgraph convex and its output the only tensor that leaves it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from brickrt.graph.time_budget import check_time
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Transpose, View
from brickrt.ops.operators.partial_reduce import Segmented
from brickrt.ops.operators.recurrence import Recurrence
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.plan.cost.cost_model import CostModel

NODES_PER_LAYER = 8  # nodes of a subgraph per heavy one that it may have, so that planning stays linear

Choose = Callable[[Sequence[int]], int]


def partition(cost: CostModel, max_layers: int, choose: Choose = len) -> list[tuple[int, ...]]:
    """The subgraphs in an order in which they can run, each with its node indices ascending.

    `choose` is given a candidate, output first, in the order in which nodes joined, and tells how many of them to
    keep (at least one): any so many first ones are a valid subgraph.
    """
    taken: set[int] = set()
    subgraphs = []
    for root in reversed(range(len(cost.graph.nodes))):
        if root not in taken:
            check_time("planning node", cost.graph.nodes[root].name)
            order = grow(cost, root, taken, max_layers)
            kept = order[: choose(order)]
            taken.update(kept)
            subgraphs.append(tuple(sorted(kept)))
    return subgraphs[::-1]


def grow(cost: CostModel, root: int, taken: set[int], max_layers: int) -> list[int]:
    """The largest subgraph with output node `root`, in the order in which its nodes join."""
    node_costs, order, inside = cost.node_costs, [root], {root}
    layers = int(node_costs[root].heavy)
    ready = [-p for p in _candidates(cost, root, root, inside)]
    heapq.heapify(ready)
    while ready and len(order) < NODES_PER_LAYER * max_layers:
        k = -heapq.heappop(ready)
        if k in taken or k in inside or layers + node_costs[k].heavy > max_layers:
            continue
        layers += node_costs[k].heavy
        order.append(k)
        inside.add(k)
        for p in _candidates(cost, root, k, inside):
            heapq.heappush(ready, -p)
    return order


def is_global(cost: CostModel, k: int) -> bool:
    """Whether node `k` reduces over a dimension that bricks cut."""
    op = cost.graph.nodes[k].op
    if not isinstance(op, Reduce | Rowwise):
        return False
    rank = cost.graph.ins(cost.graph.nodes[k])[0].rank
    return op.axes != ((1,) if cost.node_costs[k].image else (rank - 1,))


def stands_alone(cost: CostModel, k: int) -> bool:
    """Whether node `k` is never merged with others."""
    return isinstance(cost.graph.nodes[k].op, View | Transpose | Segmented | Recurrence) or is_global(cost, k)


def _candidates(cost: CostModel, root: int, reader: int, inside: set[int]) -> list[int]:
    """Producers of what `reader` reads that may join now."""
    graph = cost.graph
    node = graph.nodes[reader]
    if stands_alone(cost, reader):
        return []
    product = isinstance(node.op, MatMul)
    names = node.inputs[:1] if product and node.inputs[0] not in node.inputs[1:] else () if product else node.inputs
    producers = (graph.producers[name] for name in dict.fromkeys(names) if name in graph.producers)
    return [p for p in producers if _may_join(cost, root, p, inside, elementwise=product)]


def _may_join(cost: CostModel, root: int, k: int, inside: set[int], elementwise: bool) -> bool:
    graph = cost.graph
    node, out = graph.nodes[k], graph.nodes[k].output
    if stands_alone(cost, k) or out in graph.outputs:
        return False
    if isinstance(node.op, MatMul) and (cost.device.kind != "cpu" or not cost.streams_both(k)):
        return False  # every brick would stream the constant columns
    readers = graph.consumers[out]
    if not inside.issuperset(readers) or graph.types[out].rank != graph.out(graph.nodes[root]).rank:
        return False
    if elementwise and not isinstance(node.op, Map | Reduce | Rowwise):
        return False
    same_cuts = not isinstance(node.op, Reduce | Rowwise) or cost.node_costs[k].image == cost.node_costs[root].image
    return same_cuts and not any(_spreads(cost, k, reader) for reader in readers)


def _spreads(cost: CostModel, k: int, reader: int) -> bool:
    """Whether the reader broadcasts the output of node `k` along a dimension that bricks cut: each recomputes it."""
    graph = cost.graph
    mine, its = graph.out(graph.nodes[k]).shape, graph.out(graph.nodes[reader]).shape
    if len(its) != len(mine):
        return False
    uncut = 1 if cost.node_costs[reader].image else len(mine) - 1
    return any(a == 1 and b > 1 for axis, (a, b) in enumerate(zip(mine, its)) if axis != uncut)
