"""Chooses the subgraphs of a graph, and how each runs: layerwise, padded, memoized (BrickDL §3.3) or, on a GPU,
fused.

A strategy that the options name is used wherever bricks are possible. "auto" merges only where the cost model says that
it saves time, or by the rules of the paper.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.geometry.halo import middle_demand, working_set
from brickrt.plan.merging.brick_shapes import brick_of, edge_by_rule, parallelism, why_whole
from brickrt.plan.merging.brickdl_rules import BrickDLRules
from brickrt.plan.merging.build_subgraphs import brick_subgraph, layerwise_subgraph
from brickrt.plan.merging.fused_bricks import busy_edges, fused_bytes
from brickrt.plan.merging.partition import partition
from brickrt.plan.merging.propose_merges import Proposal, propose
from brickrt.plan.options import PlanOptions, SubgraphStrategy
from brickrt.plan.subgraph import Subgraph

RECOMPUTE_LIMIT = 4.0  # a node joins forced padded bricks while they compute it at most so many times over


def choose_subgraphs(cost: CostModel, options: PlanOptions) -> list[Subgraph]:
    """The subgraphs in an order in which they can run."""
    max_layers = options.max_layers or cost.device.max_layers
    if options.strategy == "layerwise" or options.rules == "unfused":
        reason = "layerwise as asked"
        return [layerwise_subgraph(cost, k, reason) for k in range(len(cost.graph.nodes))]
    if options.rules == "brickdl":
        return BrickDLRules(cost, options.brick).subgraphs(max_layers)
    if options.strategy == "auto":
        return _Auto(cost, options.brick).subgraphs(max_layers)
    if options.strategy == "fused":
        return _Fused(cost, options.strategy, options.brick).subgraphs(max_layers)
    return _Forced(cost, options.strategy, options.brick).subgraphs(max_layers)


class _Forced:
    """The strategy that was asked for, in bricks of the edge that was asked for or that the rule gives."""

    def __init__(self, cost: CostModel, asked: SubgraphStrategy, brick: int | None) -> None:
        self.cost, self.asked, self.brick = cost, asked, brick

    def subgraphs(self, max_layers: int) -> list[Subgraph]:
        return [self.decide(nodes) for nodes in partition(self.cost, max_layers, self.choose)]

    def edge(self, root: int) -> int:
        return self.brick or edge_by_rule(self.cost, root)

    def refusal(self, root: int) -> str | None:
        """Says why the output of node `root` is not cut in bricks; None where it can be."""
        whole = why_whole(self.cost, root)
        if whole or self.cost.node_costs[root].image:
            return whole
        rows = self.cost.graph.out(self.cost.graph.nodes[root]).shape[-2]
        edge = self.edge(root)
        return f"{rows} rows are no more than a brick of {edge}" if rows <= edge else None

    def choose(self, order: Sequence[int]) -> int:
        """Keeps as many nodes as fit fast memory and are not recomputed more than RECOMPUTE_LIMIT allows."""
        cost, root = self.cost, order[0]
        if self.refusal(root):
            return 1
        brick = brick_of(cost, root, self.edge(root))
        demand = middle_demand(cost.graph, root, [brick])
        bricks = math.prod(cost.graph.out(cost.graph.nodes[root]).shape) / math.prod(brick)
        for n, k in enumerate(order):
            output = cost.graph.nodes[k].output
            again = demand.needed[output].volumes[0] * bricks / max(1, cost.graph.types[output].size)
            demand.join(k)
            too_large = working_set(cost.graph, demand.needed)[0] > cost.device.fast_bytes
            if n and (too_large or (self.asked == "padded" and again > RECOMPUTE_LIMIT)):
                return n
        return len(order)

    def decide(self, nodes: tuple[int, ...]) -> Subgraph:
        root, asked, cost = nodes[-1], self.asked, self.cost
        refusal = self.refusal(root)
        if refusal:
            return layerwise_subgraph(cost, root, f"layerwise, not {asked}: {refusal}")
        edge = self.edge(root)
        how = "asked" if self.brick else f"ρ={parallelism(cost, root, edge):.3g}, τ={cost.device.tau}"
        brick = brick_of(cost, root, edge)
        why = f"{asked} as asked: edge {edge} ({how})"
        return brick_subgraph(cost, nodes, Proposal(asked, brick, brick, len(nodes), why))


class _Fused(_Forced):
    """Fused bricks wherever several nodes fit shared memory: with the edge that was asked for, or with the one that
    keeps most nodes, the largest of several."""

    def __init__(self, cost: CostModel, asked: SubgraphStrategy, brick: int | None) -> None:
        super().__init__(cost, asked, brick)
        self.edges: dict[int, int] = {}

    def edge(self, root: int) -> int:
        return self.edges.get(root) or super().edge(root)

    def choose(self, order: Sequence[int]) -> int:
        root = order[0]
        if why_whole(self.cost, root):
            return 1
        edges = [self.brick] if self.brick else busy_edges(self.cost, root) or [super().edge(root)]
        kept = self.fitting(order, edges)
        most = max(kept)
        self.edges[root] = max(edge for edge, n in zip(edges, kept) if n == most)
        return 1 if self.refusal(root) else most

    def fitting(self, order: Sequence[int], edges: Sequence[int]) -> list[int]:
        """How many nodes have room for their intermediates in bricks of each edge, by the brick in the middle."""
        cost, root = self.cost, order[0]
        demand = middle_demand(cost.graph, root, [brick_of(cost, root, edge) for edge in edges])
        kept = [1] * len(edges)
        demand.join(root)
        for n, k in enumerate(order[1:], 2):
            demand.join(k)
            fits = np.isfinite(fused_bytes(cost, order[:n], demand.needed))
            kept = [n if fit and before == n - 1 else before for fit, before in zip(fits, kept)]
        return kept

    def decide(self, nodes: tuple[int, ...]) -> Subgraph:
        if len(nodes) == 1:
            refusal = self.refusal(nodes[0]) or "nothing before it can join"
            return layerwise_subgraph(self.cost, nodes[0], f"layerwise, not fused: {refusal}")
        made = super().decide(nodes)
        if math.isfinite(made.modelled_us):
            return made
        why = "padded, not fused: bricks at the edges take more than shared memory has room for"
        return brick_subgraph(self.cost, nodes, Proposal("padded", made.brick, made.band, len(nodes), why))


class _Auto:
    """Merges where the cost model says that it saves time; a node that stays alone runs layerwise."""

    def __init__(self, cost: CostModel, brick: int | None) -> None:
        self.cost, self.brick = cost, brick
        self.known: dict[Hashable, Proposal | str] = {}
        self.found: dict[int, Proposal] = {}
        self.reasons: dict[int, str] = {}
        self.made: dict[Hashable, Subgraph] = {}

    def subgraphs(self, max_layers: int) -> list[Subgraph]:
        return [self.decide(nodes) for nodes in partition(self.cost, max_layers, self.choose)]

    def choose(self, order: Sequence[int]) -> int:
        root = order[0]
        if len(order) == 1:
            self.reasons[root] = "layerwise: nothing before it can join"
            return 1
        structure = self.cost.structure(order)
        if structure not in self.known:
            self.known[structure] = propose(self.cost, order, self.brick)
        answer = self.known[structure]
        if isinstance(answer, str):
            self.reasons[root] = f"layerwise: {answer}"
            return 1
        self.found[root] = answer
        return answer.nodes

    def decide(self, nodes: tuple[int, ...]) -> Subgraph:
        """The record of these nodes; equal subgraphs are counted once."""
        root, cost = nodes[-1], self.cost
        proposal = self.found.get(root)
        own = tuple((cost.node_costs[k], cost.algorithms.get(k)) for k in nodes)
        structure = cost.structure(nodes), own, proposal
        if structure not in self.made:
            reason = self.reasons.get(root, "")
            made = brick_subgraph(cost, nodes, proposal) if proposal else layerwise_subgraph(cost, root, reason)
            self.made[structure] = made
        made = self.made[structure]
        return replace(made, nodes=nodes, why=made.why if proposal else self.reasons[root])
