"""Chooses the subgraphs of a graph, and how each runs: layerwise, padded or memoized (BrickDL §3.3).

A strategy that the options name is used wherever bricks are possible at all. "auto" merges only where the cost model
says that it saves time.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.geometry.halo import Demand, middle_boxes, working_set
from brickrt.plan.merging.brick_shapes import cut_of, edge_by_rule, parallelism, why_whole
from brickrt.plan.merging.build_subgraphs import brick_subgraph, layerwise_subgraph
from brickrt.plan.merging.partition import partition
from brickrt.plan.merging.propose_merges import Proposal, propose
from brickrt.plan.options import PlanOptions
from brickrt.plan.subgraph import Subgraph

RECOMPUTE_LIMIT = 4.0  # a node joins forced padded bricks while they compute it at most so many times over


def choose_subgraphs(model: CostModel, options: PlanOptions) -> list[Subgraph]:
    """The subgraphs in an order in which they can run."""
    max_layers = options.max_layers or model.device.max_layers
    if options.strategy == "layerwise":
        reason = "layerwise as asked"
        return [layerwise_subgraph(model, k, reason) for k in range(len(model.graph.nodes))]
    if options.strategy == "auto":
        return _Auto(model, options).subgraphs(max_layers)
    return _Forced(model, options).subgraphs(max_layers)


class _Forced:
    """The strategy that was asked for, in bricks of the edge that was asked for or that the rule gives."""

    def __init__(self, model: CostModel, options: PlanOptions) -> None:
        self.model, self.options = model, options

    def subgraphs(self, max_layers: int) -> list[Subgraph]:
        return [self.decide(nodes) for nodes in partition(self.model, max_layers, self.choose)]

    def edge(self, root: int) -> int:
        return self.options.brick or edge_by_rule(self.model, root)

    def refusal(self, root: int) -> str | None:
        """Why the output of `root` is not cut in bricks, or None where it can be."""
        whole = why_whole(self.model, root)
        if whole or self.model.facts[root].image:
            return whole
        rows = self.model.graph.out(self.model.graph.nodes[root]).shape[-2]
        edge = self.edge(root)
        return f"{rows} rows are no more than a brick of {edge}" if rows <= edge else None

    def choose(self, order: Sequence[int]) -> int:
        """As many nodes as fit fast memory and are not recomputed over and over."""
        model, root = self.model, order[0]
        if self.refusal(root):
            return 1
        shape = model.graph.out(model.graph.nodes[root]).shape
        brick = cut_of(model, root).brick(shape, self.edge(root))
        demand = Demand(model.graph, model.graph.nodes[root].output, middle_boxes(shape, [brick]))
        bricks = math.prod(shape) / math.prod(brick)
        for n, k in enumerate(order):
            output = model.graph.nodes[k].output
            again = demand.needed[output].volumes[0] * bricks / max(1, model.graph.types[output].size)
            demand.join(k)
            too_large = working_set(model.graph, demand.needed)[0] > model.device.fast_bytes
            if n and (too_large or (self.options.strategy == "padded" and again > RECOMPUTE_LIMIT)):
                return n
        return len(order)

    def decide(self, nodes: tuple[int, ...]) -> Subgraph:
        root, asked = nodes[-1], self.options.strategy
        refusal = self.refusal(root)
        if refusal:
            return layerwise_subgraph(self.model, root, f"layerwise, not {asked}: {refusal}")
        shape = self.model.graph.out(self.model.graph.nodes[root]).shape
        edge = self.edge(root)
        how = (
            "asked" if self.options.brick else f"ρ={parallelism(self.model, root, edge):.3g}, τ={self.model.device.tau}"
        )
        brick = cut_of(self.model, root).brick(shape, edge)
        return brick_subgraph(
            self.model, nodes, Proposal(asked, brick, brick, len(nodes), f"{asked} as asked: edge {edge} ({how})")
        )


class _Auto:
    """Merges where the model says that it pays; a node that stays alone runs layerwise."""

    def __init__(self, model: CostModel, options: PlanOptions) -> None:
        self.model, self.options = model, options
        self.known: dict[Hashable, Proposal | str] = {}
        self.found: dict[int, Proposal] = {}
        self.reasons: dict[int, str] = {}

    def subgraphs(self, max_layers: int) -> list[Subgraph]:
        return [self.decide(nodes) for nodes in partition(self.model, max_layers, self.choose)]

    def choose(self, order: Sequence[int]) -> int:
        root = order[0]
        if len(order) == 1:
            self.reasons[root] = "layerwise: nothing before it can join"
            return 1
        structure = self.model.structure(order)
        if structure not in self.known:
            self.known[structure] = propose(self.model, order, self.options.brick)
        answer = self.known[structure]
        if isinstance(answer, str):
            self.reasons[root] = f"layerwise: {answer}"
            return 1
        self.found[root] = answer
        return answer.nodes

    def decide(self, nodes: tuple[int, ...]) -> Subgraph:
        root = nodes[-1]
        if root not in self.found:
            return layerwise_subgraph(self.model, root, self.reasons[root])
        return brick_subgraph(self.model, nodes, self.found[root])
