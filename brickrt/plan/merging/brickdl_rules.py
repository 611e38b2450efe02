"""The rules of the BrickDL paper, taken literally (§3.3), in place of the cost model.

A subgraph grows backwards from its output while one of its bricks fits fast memory; a reduction or an operator that
needs the whole tensor ends one, so that nothing is merged behind it. Bricks have the edge that gives the most of them,
but no more than τ. Where there are fewer bricks than a brick has elements along the axes that are cut, ρ < Bⁿ, layers
run one by one. Bricks are memoized where halos would add more than 15 % to the arithmetic, else padded.
"""

from __future__ import annotations

from collections.abc import Sequence

from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.geometry.bricks import BrickGrid
from brickrt.plan.geometry.halo import growth, middle_demand, needed_boxes, totals, working_set
from brickrt.plan.merging.brick_shapes import brick_of, cut_of, parallelism, why_whole
from brickrt.plan.merging.build_subgraphs import brick_subgraph, layerwise_subgraph
from brickrt.plan.merging.partition import partition
from brickrt.plan.merging.propose_merges import Proposal
from brickrt.plan.options import SubgraphStrategy
from brickrt.plan.subgraph import Subgraph

TAU = 2**12  # most bricks
EDGES = (4, 8, 16, 32)
DELTA_LIMIT = 0.15


class BrickDLRules:
    """Chooses subgraphs by the paper's rules; `brick` is an edge that was asked for in place of theirs."""

    def __init__(self, cost: CostModel, brick: int | None) -> None:
        self.cost, self.brick = cost, brick

    def subgraphs(self, max_layers: int) -> list[Subgraph]:
        """The subgraphs in an order in which they can run, of so many convolutions and products at most."""
        return [self.decide(nodes) for nodes in partition(self.cost, max_layers, self.choose)]

    def edge(self, root: int) -> int:
        """The edge with most parallelism ρ ≤ τ; the largest where all exceed τ."""
        return self.brick or next((edge for edge in EDGES if parallelism(self.cost, root, edge) <= TAU), EDGES[-1])

    def refusal(self, root: int) -> str | None:
        """Says why the output of node `root` is not cut in bricks; None where it is."""
        whole = why_whole(self.cost, root)
        if whole:
            return whole
        edge, axes = self.edge(root), len(cut_of(self.cost, root).axes)
        rho = parallelism(self.cost, root, edge)
        return f"ρ={rho:.3g} < {edge}^{axes}" if rho < edge**axes else None

    def choose(self, order: Sequence[int]) -> int:
        """How many of these nodes, output first, run together."""
        cost, root = self.cost, order[0]
        if self.refusal(root):
            return 1
        demand = middle_demand(cost.graph, root, [brick_of(cost, root, self.edge(root))])
        for n, k in enumerate(order):
            if n and isinstance(cost.graph.nodes[k].op, Reduce | Rowwise):
                return n
            demand.join(k)
            if n and working_set(cost.graph, demand.needed)[0] > cost.device.fast_bytes:
                return n
        return len(order)

    def decide(self, nodes: tuple[int, ...]) -> Subgraph:
        """How these nodes, ascending, run."""
        cost, root = self.cost, nodes[-1]
        refusal = self.refusal(root) or ("nothing before it can join" if len(nodes) == 1 else None)
        if refusal:
            return layerwise_subgraph(cost, root, f"layerwise by BrickDL's rules: {refusal}")
        edge = self.edge(root)
        brick = brick_of(cost, root, edge)
        delta = self.delta(nodes, brick)
        strategy: SubgraphStrategy = "memoized" if delta > DELTA_LIMIT else "padded"
        rho = f"edge {edge} as asked" if self.brick else f"edge {edge}, ρ={parallelism(cost, root, edge):.3g} ≤ {TAU}"
        limit = f"Δ={delta:.1%} {'>' if delta > DELTA_LIMIT else '≤'} {DELTA_LIMIT:.0%}"
        why = f"BrickDL's rules: {limit}, {rho}"
        return brick_subgraph(cost, nodes, Proposal(strategy, brick, brick, len(nodes), why))

    def delta(self, nodes: tuple[int, ...], brick: tuple[int, ...]) -> float:
        """Δ: the growth of arithmetic by halos, over all bricks."""
        graph = self.cost.graph
        grid = BrickGrid(graph.out(graph.nodes[nodes[-1]]).shape, brick)
        boxes, times = grid.sample()
        touched = totals(needed_boxes(graph, nodes, boxes), times)
        return float(growth(graph, nodes, touched, [self.cost.node_costs[k].flops for k in nodes])[0])
