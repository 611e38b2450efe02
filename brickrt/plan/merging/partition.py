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
from brickrt.ops.operators.reduce import Reduce, RunningSum
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.ops.operators.sampling.grid_sample import GridSample
from brickrt.plan.cost.cost_model import CostModel

NODES_PER_LAYER = 8  # nodes of a subgraph per heavy one that it may have, so that planning stays linear

Choose = Callable[[Sequence[int]], int]


def partition(cost: CostModel, max_layers: int, choose: Choose = len) -> list[tuple[int, ...]]:
    """The subgraphs in an order in which they can run, each with its node indices ascending.

    `choose` is given a candidate, output first, in the order in which nodes joined, and tells how many of them to
    keep (at least one): any so many first ones are a valid subgraph.
    """
    taken: set[int] = set()
    joining = _Joining(cost)
    subgraphs = []
    for root in reversed(range(len(cost.graph.nodes))):
        if root not in taken:
            check_time("planning node", cost.graph.nodes[root].name)
            order = joining.grow(root, taken, max_layers)
            kept = order[: choose(order)]
            taken.update(kept)
            subgraphs.append(tuple(sorted(kept)))
    return subgraphs[::-1]


def is_global(cost: CostModel, k: int) -> bool:
    """Whether node `k` reduces over a dimension that bricks cut."""
    op = cost.graph.nodes[k].op
    if not isinstance(op, Reduce | Rowwise):
        return False
    rank = cost.graph.ins(cost.graph.nodes[k])[0].rank
    return op.axes != ((1,) if cost.node_costs[k].image else (rank - 1,))


def stands_alone(cost: CostModel, k: int) -> bool:
    """Whether node `k` is never merged with others."""
    alone = View | Transpose | Segmented | Recurrence | RunningSum | GridSample
    return isinstance(cost.graph.nodes[k].op, alone) or is_global(cost, k)


class _Joining:
    """Which nodes of a graph join which others. What of that does not depend on a subgraph is asked once a node."""

    def __init__(self, cost: CostModel) -> None:
        self.cost, self.graph = cost, cost.graph
        self._producers: dict[int, list[int]] = {}  # those that may ever join their reader
        self._mergeable: dict[int, bool] = {}

    def grow(self, root: int, taken: set[int], max_layers: int) -> list[int]:
        """The largest subgraph with output node `root`, in the order in which its nodes join."""
        node_costs, order, inside = self.cost.node_costs, [root], {root}
        layers = int(node_costs[root].heavy)
        ready = [-p for p in self.candidates(root, root, inside)]
        heapq.heapify(ready)
        while ready and len(order) < NODES_PER_LAYER * max_layers:
            k = -heapq.heappop(ready)
            if k in taken or k in inside or layers + node_costs[k].heavy > max_layers:
                continue
            layers += node_costs[k].heavy
            order.append(k)
            inside.add(k)
            for p in self.candidates(root, k, inside):
                heapq.heappush(ready, -p)
        return order

    def candidates(self, root: int, reader: int, inside: set[int]) -> list[int]:
        """Producers of what `reader` reads that may join now."""
        if reader not in self._producers:
            self._producers[reader] = [p for p in self.producers(reader) if self.mergeable(p)]
        return [p for p in self._producers[reader] if self.may_join(root, p, inside)]

    def producers(self, reader: int) -> list[int]:
        """Nodes that may join where `reader` is: of a product, what computes its first factor element by element."""
        graph, node = self.graph, self.graph.nodes[reader]
        if stands_alone(self.cost, reader):
            return []
        product = isinstance(node.op, MatMul)
        names = node.inputs[:1] if product and node.inputs[0] not in node.inputs[1:] else () if product else node.inputs
        needed_whole = {node.inputs[i] for i in node.op.anywhere}
        found = [
            graph.producers[name]
            for name in dict.fromkeys(names)
            if name in graph.producers and name not in needed_whole
        ]
        return [p for p in found if not product or isinstance(graph.nodes[p].op, Map | Reduce | Rowwise)]

    def mergeable(self, k: int) -> bool:
        """Whether node `k` may join any of its readers."""
        if k not in self._mergeable:
            self._mergeable[k] = self._is_mergeable(k)
        return self._mergeable[k]

    def _is_mergeable(self, k: int) -> bool:
        cost, node = self.cost, self.graph.nodes[k]
        if stands_alone(cost, k) or node.output in self.graph.outputs:
            return False
        if isinstance(node.op, MatMul) and (cost.device.kind != "cpu" or not cost.streams_both(k)):
            return False  # every brick would stream the constant columns
        return not any(_spreads(cost, k, reader) for reader in self.graph.consumers[node.output])

    def may_join(self, root: int, k: int, inside: set[int]) -> bool:
        """Whether mergeable node `k` may join a subgraph now: all its readers are there, and it is cut alike."""
        graph, node = self.graph, self.graph.nodes[k]
        if not inside.issuperset(graph.consumers[node.output]):
            return False
        if graph.types[node.output].rank != graph.out(graph.nodes[root]).rank:
            return False
        costs = self.cost.node_costs
        return not isinstance(node.op, Reduce | Rowwise) or costs[k].image == costs[root].image


def _spreads(cost: CostModel, k: int, reader: int) -> bool:
    """Whether the reader broadcasts the output of node `k` along a dimension that bricks cut: each recomputes it."""
    graph = cost.graph
    mine, its = graph.out(graph.nodes[k]).shape, graph.out(graph.nodes[reader]).shape
    if len(its) != len(mine):
        return False
    uncut = 1 if cost.node_costs[reader].image else len(mine) - 1
    return any(a == 1 and b > 1 for axis, (a, b) in enumerate(zip(mine, its)) if axis != uncut)
