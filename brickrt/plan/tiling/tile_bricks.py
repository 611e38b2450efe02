"""Cuts a layer that tile registers compute into tasks.

Every piece of channels copies the input anew, every piece of rows reads all weights anew, and both leave tiles that are
not full. So all cuts are modelled, and the fastest is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from brickrt.ops.operators.conv import ConvTranspose
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Shape
from brickrt.plan.cost.constants import UNEVEN_TILES, UNHIDDEN_SHARE
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.cost.roofline import overlapped_us, read_us
from brickrt.plan.cost.tile_products import TILE_BLOCKS, TileWork, column_dim
from brickrt.plan.geometry.bricks import brick_count, even_edges


def tile_brick(cost: CostModel, k: int, most: int) -> Shape:
    """The brick of the output of node `k` that makes up to `most` tasks, or few more."""
    graph, node, device = cost.graph, cost.graph.nodes[k], cost.device
    out, work = graph.out(node).shape, TileWork.of(graph, node, device)
    columns, computed = column_dim(node.op), cost.streams_both(k)
    after = (cost.node_costs[k].core_us - work.box_us(out)) / math.prod(out)  # of an output, in the epilogue

    def modelled(brick: Shape) -> float:
        rounds = -(-brick_count(out, brick) // device.cores)
        weights = work.weight_bytes(brick[columns]) * (math.prod(brick[:-2]) if computed else 1)
        first = read_us(weights, weights if computed else cost.constant_bytes, device)
        again = read_us(weights, weights, device)
        own = min(rounds, -(-out[columns] // brick[columns]))  # pieces of columns that a core reads
        reads = own * first + (rounds - own) * again
        arithmetic = rounds * (work.box_us(brick) + max(0.0, after) * math.prod(brick))
        waits = 1 + UNEVEN_TILES / rounds * (device.cores > 1)
        return overlapped_us(arithmetic, reads, UNHIDDEN_SHARE) * waits + rounds * device.task_overhead_us

    bricks = product(*_edges(cost, k, 2 * most - 1))
    return min((brick for brick in bricks if brick_count(out, brick) < 2 * most), key=modelled)


def _edges(cost: CostModel, k: int, most: int) -> Iterator[list[int]]:
    """Edges to try, per dimension of the output: images, whole tiles of channels, rows. Lines of pixels stay whole, but
    for those of a signal."""
    node = cost.graph.nodes[k]
    out = cost.graph.out(node).shape
    units = [1] * len(out)
    units[column_dim(node.op)] = TILE_BLOCKS * cost.device.lanes
    if not isinstance(node.op, MatMul):
        units[3:] = out[3:]
    if isinstance(node.op, ConvTranspose):  # whole windows, of all channels
        units[1:3] = out[1], node.op.strides[0]
    return (even_edges(extent, unit, most) for extent, unit in zip(out, units, strict=True))
