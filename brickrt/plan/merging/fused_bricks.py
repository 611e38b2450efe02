"""Fused bricks, padded ones whose intermediates stay in a GPU's shared memory: what is tried, what it takes there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from brickrt.graph.ir import Graph
from brickrt.ops.cuda.kernel import Precision
from brickrt.ops.cuda.shared_memory import fused_blocks, fused_room, most_with
from brickrt.ops.types import Boxes, Shape
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.cost.tile_times import FirstFactor, TileTimes, tile_times
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.geometry.brick_packing import pack_brick
from brickrt.plan.geometry.bricks import brick_count
from brickrt.plan.geometry.in_place import kept_bytes, products, read_in_place, stored_extents
from brickrt.plan.merging.brick_shapes import cut_of, parallelism

FUSED_EDGES = (4, 8, 16, 32)
CHANNEL_CUTS = (2, 4, 8)
LEAST_CHANNELS = 8  # of a brick that is cut along them: a vector of any type
FEWEST_BRICKS = 16  # that are worth trying: of fewer, most multiprocessors have none
HEAD = 3  # words of a record, its output's among them
RECORDS_MORE = 512  # bytes of the records of partial reductions, which join later, and of what alignment takes
WIDEST_RATIO = 2  # of a brick's width to its other edges: rows are read in long runs


def fused_candidates(cost: CostModel, k: int) -> list[Shape]:
    """Bricks to try for the output of node `k`. Where bricks of all channels are fewer than multiprocessors, these are
    cut too: each block computes again what it needs of the nodes before, of which depthwise ones need those channels
    alone."""
    shape, cut = cost.graph.out(cost.graph.nodes[k]).shape, cut_of(cost, k)
    edges = [dict.fromkeys(cut.axes, e) for e in FUSED_EDGES]
    if len(cut.axes) > 1:
        edges += [dict.fromkeys(cut.axes, e) | {cut.axes[-1]: WIDEST_RATIO * e} for e in FUSED_EDGES]
    axis = 1 if cost.node_costs[k].image else len(shape) - 1
    parts = [n for n in CHANNEL_CUTS if shape[axis] % (n * LEAST_CHANNELS) == 0]
    bricks = {}
    for some in edges:
        whole = cut.brick_along(shape, some)
        bricks[whole] = brick_count(shape, whole)
        if bricks[whole] < cost.device.cores:
            each = (cut.brick_along(shape, some | {axis: shape[axis] // n}) for n in parts)
            bricks |= {brick: brick_count(shape, brick) for brick in each}
    return [brick for brick, n in bricks.items() if n >= FEWEST_BRICKS]


def only_fused(cost: CostModel, k: int, brick: Shape) -> bool:
    """Whether such bricks of the output of node `k` are tried for shared memory alone."""
    shape, cut = cost.graph.out(cost.graph.nodes[k]).shape, cut_of(cost, k)
    uncut = (axis for axis in range(len(shape)) if axis not in (*cut.single, *cut.axes))
    return brick_count(shape, brick) < cost.device.cores or any(brick[axis] < shape[axis] for axis in uncut)


def busy_edges(cost: CostModel, k: int) -> list[int]:
    """Edges of bricks of the output of node `k` that give each multiprocessor at least one."""
    device = cost.device
    edges = device.edges if cost.node_costs[k].image else device.row_edges
    return [edge for edge in edges if parallelism(cost, k, edge) >= device.cores]


def fused_bytes(cost: CostModel, nodes: Sequence[int], needed: Mapping[str, Boxes]) -> np.ndarray:
    """Bytes that each brick's intermediates, its records and its functions take, infinite where shared memory has no
    room.

    `needed` are the boxes of every tensor that each brick needs.
    """
    graph, nodes = cost.graph, sorted(nodes)
    count = len(next(iter(needed.values())))
    found = np.full(count, math.inf)
    if cost.device.kind != "cuda":
        return found
    records = RECORDS_MORE + sum(_record_bytes(graph, k) for k in nodes)
    functions = kept_bytes(graph, cost.layouts, nodes, cost.precision)
    room = fused_room(cost.device.l1, functions) - records
    sizes = _stored_bytes(cost, nodes, needed)
    for i in range(count):
        own = {name: int(size[i]) for name, size in sizes.items()}
        if max(own.values(), default=0) <= room:
            _, total = pack_brick(graph, nodes, own)
            found[i] = total + records + functions if total <= room else math.inf
    return found


def _stored_bytes(cost: CostModel, nodes: Sequence[int], needed: Mapping[str, Boxes]) -> dict[str, np.ndarray]:
    """Bytes that the intermediates of each brick take."""
    graph, found = cost.graph, {}
    in_place = set(read_in_place(graph, cost.layouts, nodes, cost.precision).values())
    for name in (graph.nodes[k].output for k in nodes[:-1]):
        item, extents = graph.types[name].dtype.itemsize, needed[name].extents
        if name in in_place:
            extents = stored_extents(extents, cost.layouts[name], item)
        found[name] = extents.prod(axis=1) * item
    return found


def fused_tiles(
    cost: CostModel, nodes: Sequence[int], needed: Mapping[str, Boxes], shared: np.ndarray
) -> dict[int, list[TileTimes]]:
    """The times of the tiles of each brick's products, by node; none where `shared`, its bytes, are infinite."""
    graph, layouts = cost.graph, cost.layouts
    in_place, made = read_in_place(graph, layouts, nodes, cost.precision), {graph.nodes[k].output for k in nodes}
    most = most_with(kept_bytes(graph, layouts, nodes, cost.precision))
    found = {}
    for k in products(graph, nodes):
        factor = FirstFactor(graph.nodes[k].inputs[0] in made, k in in_place, most)
        extents = needed[graph.nodes[k].output].extents.tolist()
        found[k] = [
            _tiles_of(cost, k, tuple(box), factor) if math.isfinite(held) else TileTimes(0.0, 0.0, 0.0)
            for box, held in zip(extents, shared, strict=True)
        ]
    return found


def _tiles_of(cost: CostModel, k: int, box: Shape, factor: FirstFactor) -> TileTimes:
    """Those of a box, which are computed once."""
    key = k, box, factor
    if key not in cost.tile_times:
        precision: Precision = "tf32" if cost.precision == "tf32" else "fp32"
        cost.tile_times[key] = tile_times(
            cost.graph, cost.layouts, cost.graph.nodes[k], box, factor, cost.device, precision
        )
    return cost.tile_times[key]


def _record_bytes(graph: Graph, k: int) -> int:
    """Bytes of the records of two steps of node `k`, at most: a word for each tensor, two for each dimension."""
    node = graph.nodes[k]
    return 2 * 8 * (HEAD + len(node.inputs) + 2 * graph.out(node).rank)


def largest_box(boxes: Boxes) -> Boxes:
    """A box with the largest extents of all, [1]."""
    extents = boxes.extents.max(axis=0, initial=0, keepdims=True)
    return Boxes(np.zeros_like(extents), extents)


def blocks_with(device: DeviceSpec, shared: np.ndarray) -> np.ndarray:
    """Blocks that a multiprocessor has room for, where each holds so many bytes (`fused_bytes`); 0 where infinite."""
    return np.array([fused_blocks(device.l1, int(held)) if math.isfinite(held) else 0 for held in shared])
