"""Images at the points of a grid, in compiled code."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from brickrt.graph.host.helpers import run_items
from brickrt.graph.host.operators.channels_last import channels_last
from brickrt.ops.cpu.fixed_function import item_loop
from brickrt.ops.cpu.host_loops import POINT_AXIS_WORDS, POINT_BLOCK, POINT_WORDS, in_order, with_axes
from brickrt.ops.definitions.sampled_points import FORMER_NAMES

UNCOMPILED_ELEMENTS = 1 << 8
"""Elements that NumPy reads before a process has compiled anything."""
EXACT = 1 << 24  # numbers of pixels up to this are exact in float32
MANY_CHANNELS = 8  # that are worth turning the image


@dataclass(frozen=True)
class Readable:
    """Float32 images as a compiled function reads them at points: [images, channels, *extents], or with their channels
    innermost, of which so many count."""

    function: int
    images: np.ndarray
    channels: int
    extents: tuple[int, ...]
    steps: list[int]

    def at(self, grid: np.ndarray) -> np.ndarray:
        """What they have at the points of `grid`, float32 [images, points, axes], innermost axis first:
        [images, channels, points]."""
        count, points = grid.shape[:2]
        out, grid = np.empty((count, self.channels, points), np.float32), np.ascontiguousarray(grid)
        blocks = -(-points // POINT_BLOCK)
        places = {"out": out.ctypes.data, "pixels": self.images.ctypes.data, "grid": grid.ctypes.data}
        steps = [stride // out.itemsize for stride in self.images.strides[:2]]
        sizes = {"points": points, "blocks": blocks, "channels": self.channels}
        axes = {f"extent{axis}": extent for axis, extent in enumerate(self.extents)}
        axes |= {f"step{axis}": step for axis, step in enumerate(self.steps)}
        names = with_axes(POINT_WORDS, POINT_AXIS_WORDS, len(self.extents))
        words = in_order(names, **places, **sizes, image_step=steps[0], channel_step=steps[1], **axes)
        run_items(self.function, count * blocks, words)
        return out


def readable(x: np.ndarray, points: int, mode: str, padding: str, align: bool | None) -> Readable | None:
    """Images [images, channels, …] to be read at so many points each, whose coordinates are pixels where `align` is
    None; None where NumPy is to do it: for others than float32, other axes than two or three, and without LLVM."""
    extents = x.shape[2:]
    if x.dtype != np.float32 or len(extents) not in (2, 3) or not math.prod(extents) or max(extents) > EXACT:
        return None
    last = len(extents) == 2 and x.shape[1] >= MANY_CHANNELS and points * 8 > math.prod(extents)
    function = item_loop(
        "sampling.points", "emit_points", len(extents), FORMER_NAMES.get(mode, mode), padding, align, last
    )
    if function is None:
        return None
    images = channels_last(x, *map(slice, (0, 0), extents)) if last else np.ascontiguousarray(x)
    steps = [stride // x.itemsize for stride in (images.strides[1:3] if last else images.strides[2:])]
    if max(n * step for n, step in zip(extents, steps)) >= 1 << 31:
        return None
    return Readable(function, images, x.shape[1], extents, steps)


def sampled(x: np.ndarray, grid: np.ndarray, mode: str, padding: str, align: bool) -> np.ndarray | None:
    """x [images, channels, …], at the points of `grid` [images, …, axes], innermost axis first; None where NumPy is to
    do it: for few elements, and those that `readable` names."""
    points = math.prod(grid.shape[1:-1])
    if grid.dtype != np.float32 or grid.shape[-1] != x.ndim - 2 or len(x) != len(grid):
        return None
    if math.prod(x.shape[:2]) * points <= UNCOMPILED_ELEMENTS:
        return None
    images = readable(x, points, mode, padding, align)
    if images is None:
        return None
    return images.at(grid.reshape(len(x), points, x.ndim - 2)).reshape(*x.shape[:2], *grid.shape[1:-1])
