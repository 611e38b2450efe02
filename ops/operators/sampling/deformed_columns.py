"""What the taps of a window read where each of them lies at a point of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Op, Slab, crop
from brickrt.ops.definitions.expressions import FLOAT64, round_to
from brickrt.ops.definitions.sampled_points import point_taps, read_between
from brickrt.ops.operators.sampling.grid_sample import FLOAT32, MOST_AXES, GridSample, has_kernel_size
from brickrt.ops.regions import box_shape, columns, settle
from brickrt.ops.types import Boxes, TensorType


@dataclass(frozen=True)
class DeformedColumns(Op):
    """x [N, C, spatial…] at points [N, groups · taps · axes, outputs…], in pixels, each with a factor
    [N, groups · taps, outputs…] where there is a third input: [N, taps · C, outputs…], all float32.

    The channels of x are cut into groups, which have points of their own. Channel t · C + c of the output is channel c
    at tap t, between pixels, with zeros beyond the image: a 1×1 convolution of it is ONNX's DeformConv.
    """

    name: ClassVar[str] = "DeformedColumns"
    anywhere: ClassVar[tuple[int, ...]] = (0,)
    taps: int

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """Raises ValueError where points or factors do not fit the images."""
        x, points, *factors = ins
        axes = x.rank - 2
        if axes not in range(2, MOST_AXES + 1) or points.rank != x.rank or points.shape[0] != x.shape[0]:
            raise ValueError(f"DeformedColumns: images {x}, points {points}")
        groups, left = divmod(points.shape[1], self.taps * axes)
        if left or not groups or x.shape[1] % groups:
            raise ValueError(
                f"DeformedColumns: {points.shape[1]} coordinates of {self.taps} taps, {x.shape[1]} channels"
            )
        wanted = TensorType((x.shape[0], groups * self.taps, *points.shape[2:]), FLOAT32)
        if any(kind != wanted for kind in factors):
            raise ValueError(f"DeformedColumns: factors {factors[0]}, not {wanted}")
        if {x.dtype, points.dtype} != {FLOAT32} or not has_kernel_size(x.shape[2:]):
            raise ValueError(f"DeformedColumns: {x} and {points} are not float32, or have no pixels, or too many")
        return TensorType((x.shape[0], self.taps * x.shape[1], *points.shape[2:]), x.dtype)

    def groups(self, points: Sequence[int]) -> int:
        """In how many groups with points of their own channels lie."""
        return points[1] // (self.taps * (len(points) - 2))

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """All of the images; the points and factors of the outputs of a box, those of all taps."""
        lo, hi, n, shape = boxes.lo, boxes.hi, len(boxes), ins[i].shape
        if i == 0:
            ends = columns(n, lo[:, :1], [0] * len(shape[1:])), columns(n, hi[:, :1], shape[1:])
        else:
            ends = columns(n, lo[:, :1], [0], lo[:, 2:]), columns(n, hi[:, :1], shape[1:2], hi[:, 2:])
        return settle(boxes, *ends, shape)

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """Values are summed in float64."""
        shape = box_shape(box)
        if 0 in shape:
            return np.empty(shape, out.dtype)
        x, points, *factors = (crop(slab, self.region(i, box, ins, out)) for i, slab in enumerate(slabs))
        count, axes, space = len(x), x.ndim - 2, points.shape[2:]
        groups = self.groups(points.shape)
        found = np.empty((count, self.taps, groups, x.shape[1] // groups, math.prod(space)), FLOAT64)
        parts = x.astype(FLOAT64).reshape(count, groups, -1, *x.shape[2:])
        places = points.reshape(count, groups, self.taps, axes, -1)
        for tap in range(self.taps):
            for group in range(groups):
                at = places[:, group, tap]
                read = [point_taps(at[:, k].reshape(-1), n, "linear", "zeros", 0.0) for k, n in enumerate(x.shape[2:])]
                values = read_between(parts[:, group], read).reshape(count, -1, found.shape[3])
                found[:, tap, group] = np.moveaxis(values, 1, 2)
        if factors:
            found *= np.moveaxis(factors[0].reshape(count, groups, self.taps, 1, -1), 2, 1)
        wanted = slice(int(box.lo[0, 1]), int(box.hi[0, 1]))
        return round_to(found.reshape(count, -1, *space)[:, wanted], out.dtype)

    def flops(self, ins: Sequence[TensorType], out: TensorType) -> int:
        """A multiply-add per pixel that a value is made of."""
        return 2 * out.size * 2 ** (ins[0].rank - 2)


ReadsPoints = GridSample | DeformedColumns
"""Operators that read images anywhere, at points that the network computes."""
