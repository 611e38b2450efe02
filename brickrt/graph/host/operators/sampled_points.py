"""Images at the points of a grid, in compiled code."""

from __future__ import annotations

import math

import numpy as np

from brickrt.graph.host.helpers import run_items
from brickrt.graph.host.operators.channels_last import channels_last
from brickrt.ops.cpu.fixed_function import item_loop

FEW = 1 << 8
"""Elements that NumPy reads before a process has compiled anything."""
EXACT = 1 << 24  # numbers of pixels up to this are exact in float32
BLOCK, MANY = 256, 8  # points of an item, as the compiled function has it; channels that are worth turning the image
MODES = {"bilinear": "linear", "bicubic": "cubic"}  # names before opset 20


def sampled(x: np.ndarray, grid: np.ndarray, mode: str, padding: str, align: bool) -> np.ndarray | None:
    """x [images, channels, …], at the points of `grid` [images, …, axes], innermost axis first; None where NumPy is to
    do it: for few elements, others than float32, more axes than three, and without LLVM."""
    axes = grid.shape[-1]
    out = np.empty((*x.shape[:2], *grid.shape[1:-1]), np.float32)
    pixels = math.prod(x.shape[2:])
    if x.dtype != np.float32 or grid.dtype != np.float32 or axes not in (2, 3) or out.size <= FEW or not pixels:
        return None
    if len(x) != len(grid) or max(x.shape[2:]) > EXACT:
        return None
    last = axes == 2 and x.shape[1] >= MANY and math.prod(grid.shape[1:-1]) * 8 > pixels
    function = item_loop("sampling.points", "emit_points", axes, MODES.get(mode, mode), padding, align, last)
    if function is None:
        return None
    image = channels_last(x, *map(slice, (0, 0), x.shape[2:])) if last else np.ascontiguousarray(x)
    steps = [stride // x.itemsize for stride in (image.strides[1:3] if last else image.strides[2:])]
    if max(n * step for n, step in zip(x.shape[2:], steps)) >= 1 << 31:
        return None
    points, grid = math.prod(grid.shape[1:-1]), np.ascontiguousarray(grid)
    blocks = -(-points // BLOCK)
    words = [*(a.ctypes.data for a in (out, image, grid)), points, blocks, x.shape[1]]
    words += [stride // x.itemsize for stride in image.strides[:2]]
    words += [word for pair in zip(x.shape[2:], steps, strict=True) for word in pair]
    run_items(function, len(x) * blocks, words)
    return out
