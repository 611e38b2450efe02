"""Makes the record of a subgraph from what was decided: brick shapes per node, counts and modelled times."""

from __future__ import annotations

import math
from collections.abc import Sequence

from brickrt.ops.types import Boxes, Shape
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.geometry.bricks import BrickGrid, brick_count
from brickrt.plan.merging.brick_shapes import Cut, cut_of
from brickrt.plan.merging.propose_merges import Proposal, counted
from brickrt.plan.subgraph import Subgraph
from brickrt.plan.tiling.layer_tiles import layer_brick


def layerwise_subgraph(cost: CostModel, k: int, why: str) -> Subgraph:
    """Node `k` on its own."""
    shape = cost.graph.out(cost.graph.nodes[k]).shape
    brick = layer_brick(cost, k)
    tasks, us = brick_count(shape, brick), cost.layerwise_us(k)
    return Subgraph(
        nodes=(k,),
        strategy="layerwise",
        brick=brick,
        band=brick,
        node_bricks=(brick,),
        delta=0.0,
        rho=float(tasks),
        bricks=tasks,
        tasks=tasks,
        flops=cost.node_costs[k].flops,
        footprint_bytes=None,
        why=why,
        modelled_us=us,
        layerwise_us=us,
    )


def brick_subgraph(cost: CostModel, nodes: tuple[int, ...], proposal: Proposal) -> Subgraph:
    """`nodes`, ascending, in the bricks of `proposal`."""
    graph, brick = cost.graph, proposal.brick
    shape = graph.out(graph.nodes[nodes[-1]]).shape
    grid = BrickGrid(shape, brick)
    needed, timing = counted(cost, nodes, proposal)
    bricks, memoized = len(grid), proposal.strategy == "memoized"
    node_bricks = _own_bricks(cost, nodes, brick) if memoized else _largest_boxes(cost, nodes, needed)
    own = [brick_count(graph.out(graph.nodes[k]).shape, edges) for k, edges in zip(nodes, node_bricks)]
    flops = [cost.node_costs[k].flops for k in nodes]
    delta = float(timing.delta[0])
    return Subgraph(
        nodes=nodes,
        strategy=proposal.strategy,
        brick=brick,
        band=proposal.band,
        node_bricks=node_bricks,
        delta=delta,
        rho=math.prod(shape) / math.prod(brick),
        bricks=bricks,
        tasks=sum(own) if memoized else bricks,
        flops=sum(flops),
        footprint_bytes=int(timing.trials.held[0]),
        why=proposal.why if "Δ" in proposal.why else f"{proposal.why}, Δ={delta:.1%}",
        modelled_us=float(timing.us(proposal.strategy)[0]),
        layerwise_us=sum(cost.layerwise_us(k) for k in nodes),
    )


def _own_bricks(cost: CostModel, nodes: Sequence[int], brick: Shape) -> tuple[Shape, ...]:
    """Bricks of memoized nodes: those of the output, whole along axes where the output is whole."""
    graph = cost.graph
    whole = graph.out(graph.nodes[nodes[-1]]).shape
    cut: Cut = cut_of(cost, nodes[-1])
    edges = {axis: brick[axis] for axis in cut.axes if brick[axis] < whole[axis]}
    shapes = [graph.out(graph.nodes[k]).shape for k in nodes]
    return tuple(cut.brick_along(shape, edges) for shape in shapes)


def _largest_boxes(cost: CostModel, nodes: Sequence[int], needed: dict[str, Boxes]) -> tuple[Shape, ...]:
    """The most that a padded brick needs of each node."""
    extents = [needed[cost.graph.nodes[k].output].extents.max(axis=0, initial=0) for k in nodes]
    return tuple(tuple(max(1, int(extent)) for extent in most) for most in extents)
