"""Cuts a layer that runs on its own on a GPU: a piece per thread block, several per multiprocessor.

Pieces of products are tiles of rows by columns, as large as leave no multiprocessor idle. Pieces of other layers have
so many elements that every thread computes a few.
"""

from __future__ import annotations

import math

from brickrt.ops.cuda.products.block_tile import cores
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise, reduced_axes
from brickrt.ops.types import Shape, TensorType
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.geometry.bricks import brick_count

TILE_SIZES = ((128, 128), (128, 64), (64, 64), (64, 32), (32, 32), (16, 64))  # rows (pixels) by columns (channels)
ELEMENTS = (16384, 8192, 4096, 2048, 1024)  # of a piece of other layers
CHANNELS = (256, 128, 64, 32)  # of a piece that reduces space
PIXELS = (1 << 30, 512, 64, 8, 1)  # of the result of such a piece


def gpu_brick(cost: CostModel, k: int) -> Shape:
    """The brick shape of node `k` that makes its thread blocks."""
    node, out = cost.graph.nodes[k], cost.graph.out(cost.graph.nodes[k])
    shape = tuple(max(1, extent) for extent in out.shape)
    precision = "tf32" if cost.precision == "tf32" else "fp32"
    if isinstance(node.op, MatMul):
        tries = [_of_matrices(shape, rows, columns) for rows, columns in tiles(cost.graph.ins(node)[0], precision)]
    elif isinstance(node.op, Conv | ConvTranspose) and node.op.groups == 1:
        tries = [(*_pixels(shape, rows), columns) for rows, columns in tiles(cost.graph.ins(node)[0], precision)]
        tries = [(t[0], min(shape[1], t[-1]), *t[1:-1]) for t in tries]
    elif cost.node_costs[k].image and len(shape) >= 3:
        tries = _of_images(cost, k, shape)
    else:
        tries = [_of_rows(shape, elements, reduced_axes(node.op)) for elements in ELEMENTS]
    want = cost.device.tasks_per_core * cost.device.cores
    return next((brick for brick in tries if brick_count(shape, brick) >= want), tries[-1])


def tiles(factor: TensorType, precision: str) -> list[tuple[int, int]]:
    """The TILE_SIZES that kernels of products with such a first operand can compute."""
    known = {(core.tile.m, core.tile.n) for core in cores(factor.dtype, precision)}
    return [tile for tile in TILE_SIZES if tile in known]


def _pixels(shape: Shape, pixels: int) -> tuple[int, ...]:
    """Batch and spatial edges of a piece of about so many pixels, which fills rows first, then planes, then images."""
    edges = [1] * (len(shape) - 1)
    extents = (shape[0], *shape[2:])
    for axis in reversed(range(len(edges))):
        edges[axis] = max(1, min(extents[axis], pixels))
        pixels //= edges[axis]
        if edges[axis] < extents[axis]:
            break
    return tuple(edges)


def _of_images(cost: CostModel, k: int, shape: Shape) -> list[Shape]:
    """Bricks to try: all channels of some pixels, or where space is reduced, some channels of what is left of it."""
    op = cost.graph.nodes[k].op
    if isinstance(op, Rowwise) and op.axes != (1,):
        return [(1, min(shape[1], channels), *shape[2:]) for channels in CHANNELS]
    if isinstance(op, Reduce) and op.axes != (1,):
        left = (_pixels((1, *shape[1:]), pixels)[1:] for pixels in PIXELS)
        return [(1, min(shape[1], channels), *edges) for edges in left for channels in CHANNELS]
    tries = (_pixels(shape, max(1, elements // shape[1])) for elements in ELEMENTS)
    return [(edges[0], shape[1], *edges[1:]) for edges in tries]


def _of_matrices(shape: Shape, rows: int, columns: int) -> Shape:
    return (*(1,) * (len(shape) - 2), min(shape[-2], rows), min(shape[-1], columns))


def _of_rows(shape: Shape, elements: int, whole: tuple[int, ...]) -> Shape:
    """A brick of about so many elements that fills innermost axes first; axes of `whole` stay whole."""
    edges = [extent if axis in whole else 1 for axis, extent in enumerate(shape)]
    left = elements // math.prod(edges)
    for axis in reversed(range(len(shape))):
        if axis not in whole:
            edges[axis] = max(1, min(shape[axis], left))
            left //= edges[axis]
    return tuple(edges)
