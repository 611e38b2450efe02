"""Images read at points that are data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from brickrt.ops.base import Op, Slab, crop
from brickrt.ops.definitions.expressions import FLOAT64, round_to
from brickrt.ops.definitions.sampled_points import sampled_in_numpy
from brickrt.ops.regions import box_shape, columns, settle
from brickrt.ops.types import Boxes, Shape, TensorType

Mode = Literal["nearest", "linear", "cubic"]
Padding = Literal["zeros", "border", "reflection"]
TAPS: dict[Mode, int] = {"nearest": 1, "linear": 2, "cubic": 4}
"""Pixels along an axis that a point is made of."""
FLOAT32 = np.dtype(np.float32)
LARGEST_PLANE = 1 << 27  # pixels, whose places 32 bits count where 16 channels lie side by side
LONGEST_AXIS = 1 << 24  # pixels, whose places float32 counts
MOST_AXES = 3


@dataclass(frozen=True)
class GridSample(Op):
    """x [N, C, spatial…] at the points of a grid [N, points…, axes], both float32: [N, C, points…].

    A point has a coordinate from -1 to 1 along each spatial axis, the innermost first; these are the middles of the
    outermost pixels if `align`, else their outer edges. Beyond the image there is what `padding` says. As ONNX's
    GridSample.
    """

    name: ClassVar[str] = "GridSample"
    anywhere: ClassVar[tuple[int, ...]] = (0,)
    mode: Mode
    padding: Padding
    align: bool

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """Raises ValueError where the grid does not fit the images."""
        x, grid = ins
        axes = x.rank - 2
        if axes not in range(2, MOST_AXES + 1) or (self.mode == "cubic" and axes > 2):
            raise ValueError(f"GridSample: no {self.mode} points of {x}")
        if grid.rank != x.rank or grid.shape[0] != x.shape[0] or grid.shape[-1] != axes:
            raise ValueError(f"GridSample: images {x}, grid {grid}; give each image points of {axes} coordinates")
        if {x.dtype, grid.dtype} != {FLOAT32} or not has_kernel_size(x.shape[2:]):
            raise ValueError(f"GridSample: {x} and {grid} are not float32, or have no pixels, or too many")
        return TensorType((*x.shape[:2], *grid.shape[1:-1]), x.dtype)

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """All pixels of the images and channels of a box; of the grid the points of the box."""
        lo, hi, n, shape = boxes.lo, boxes.hi, len(boxes), ins[i].shape
        if i == 0:
            ends = columns(n, lo[:, :2], [0] * len(shape[2:])), columns(n, hi[:, :2], shape[2:])
        else:
            ends = columns(n, lo[:, 0], lo[:, 2:], [0]), columns(n, hi[:, 0], hi[:, 2:], shape[-1:])
        return settle(boxes, *ends, shape)

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """Points are found in float32, values summed in float64."""
        shape: Shape = box_shape(box)
        if 0 in shape:
            return np.empty(shape, out.dtype)
        x, grid = (crop(slab, self.region(i, box, ins, out)) for i, slab in enumerate(slabs))
        return round_to(sampled_in_numpy(x.astype(FLOAT64), grid, self.mode, self.padding, self.align), out.dtype)

    def flops(self, ins: Sequence[TensorType], out: TensorType) -> int:
        """A multiply-add per pixel that a point is made of."""
        return 2 * out.size * TAPS[self.mode] ** (ins[0].rank - 2)


def has_kernel_size(extents: Sequence[int]) -> bool:
    """Whether images of these extents have pixels, and not too many for a kernel."""
    return 0 < math.prod(extents) <= LARGEST_PLANE and max(extents) <= LONGEST_AXIS
