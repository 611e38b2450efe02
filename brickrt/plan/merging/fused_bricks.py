"""Fused bricks, padded ones whose intermediates stay in a GPU's shared memory: what is tried, what it takes there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from brickrt.graph.ir import Graph
from brickrt.ops.cuda.shared_memory import fused_blocks, fused_room
from brickrt.ops.types import Boxes, Shape
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.geometry.brick_packing import pack_brick
from brickrt.plan.merging.brick_shapes import cut_of, parallelism

FUSED_EDGES = (4, 8, 16, 32)
HEAD = 3  # words of a record, its output's among them
RECORDS_MORE = 512  # bytes of the records of partial reductions, which join later, and of what alignment takes
WIDER = 2  # times its other edges that a brick may be wide: rows are read in long runs


def fused_candidates(cost: CostModel, k: int) -> list[Shape]:
    """Bricks to try for the output of node `k`, which give each multiprocessor at least one."""
    shape, cut = cost.graph.out(cost.graph.nodes[k]).shape, cut_of(cost, k)
    edges = [dict.fromkeys(cut.axes, e) for e in FUSED_EDGES]
    if len(cut.axes) > 1:
        edges += [dict.fromkeys(cut.axes, e) | {cut.axes[-1]: WIDER * e} for e in FUSED_EDGES]
    bricks = dict.fromkeys(cut.brick_along(shape, some) for some in edges)
    return [brick for brick in bricks if math.prod(-(-e // b) for e, b in zip(shape, brick)) >= cost.device.cores]


def busy_edges(cost: CostModel, k: int) -> list[int]:
    """Edges of bricks of the output of node `k` that give each multiprocessor at least one."""
    device = cost.device
    edges = device.edges if cost.node_costs[k].image else device.row_edges
    return [edge for edge in edges if parallelism(cost, k, edge) >= device.cores]


def fused_bytes(cost: CostModel, nodes: Sequence[int], needed: Mapping[str, Boxes]) -> np.ndarray:
    """Bytes that the intermediates of each brick and its records take, infinite where shared memory has no room.

    `needed` are the boxes of every tensor that each brick needs.
    """
    graph = cost.graph
    records = RECORDS_MORE + sum(_record_bytes(graph, k) for k in nodes)
    room = fused_room(cost.device.l1) - records
    names = [graph.nodes[k].output for k in sorted(nodes)[:-1]]
    count = len(next(iter(needed.values())))
    found = np.full(count, math.inf)
    if cost.device.kind != "cuda" or room < 0:
        return found
    sizes = {name: needed[name].volumes * graph.types[name].dtype.itemsize for name in names}
    for i in range(count):
        own = {name: int(size[i]) for name, size in sizes.items()}
        if max(own.values(), default=0) <= room:
            _, total = pack_brick(graph, nodes, own)
            found[i] = total + records if total <= room else math.inf
    return found


def _record_bytes(graph: Graph, k: int) -> int:
    """Bytes of the records of two steps of node `k`, at most: a word for each tensor, two for each dimension."""
    node = graph.nodes[k]
    return 2 * 8 * (HEAD + len(node.inputs) + 2 * graph.out(node).rank)


def largest_box(boxes: Boxes) -> Boxes:
    """A box with the largest extents of all, [1]."""
    extents = boxes.extents.max(axis=0, initial=0, keepdims=True)
    return Boxes(np.zeros_like(extents), extents)


def blocks_with(device: DeviceSpec, shared: np.ndarray) -> np.ndarray:
    """Blocks that a multiprocessor has room for, where each holds so many bytes of intermediates; 0 where infinite."""
    return np.array([fused_blocks(device.l1, int(held)) if math.isfinite(held) else 0 for held in shared])
