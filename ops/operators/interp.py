"""Linear and cubic Resize as weighted sums along one axis after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Op, Slab, crop
from brickrt.ops.definitions.expressions import FLOAT64, round_to
from brickrt.ops.regions import TableRange, box_shape, settle
from brickrt.ops.types import Boxes, TensorType


@dataclass(frozen=True)
class AxisTaps:
    """Along an axis, output i is the sum over k of weights[i][k] · input[indices[i][k]]; indices are in range."""

    indices: tuple[tuple[int, ...], ...]
    weights: tuple[tuple[float, ...], ...]

    @cached_property
    def ranges(self) -> TableRange:
        """What ranges of outputs read."""
        indices = self.index_array
        return TableRange(indices.min(axis=1), indices.max(axis=1), int(indices.max(initial=-1)) + 1)

    @property
    def count(self) -> int:
        """Taps of an output; one where there are no outputs."""
        return len(self.indices[0]) if self.indices else 1

    @property
    def index_array(self) -> np.ndarray:
        """The indices as int64 [outputs, taps]."""
        return np.asarray(self.indices, np.int64).reshape(len(self.indices), self.count)

    @property
    def weight_array(self) -> np.ndarray:
        """The weights as float64 [outputs, taps]."""
        return np.asarray(self.weights, np.float64).reshape(len(self.weights), self.count)


@dataclass(frozen=True)
class Interp(Op):
    """Weighted sums along the axes that have `AxisTaps`; axes with None are kept."""

    name: ClassVar[str] = "Interp"
    taps: tuple[AxisTaps | None, ...]

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """An axis with taps gets as many outputs as its table has rows."""
        (x,) = ins
        if len(self.taps) != x.rank:
            raise ValueError(f"Interp: taps for {len(self.taps)} axes, input {x}")
        shape = list(x.shape)
        for axis, taps in enumerate(self.taps):
            if taps is not None:
                self._check(axis, taps, x)
                shape[axis] = len(taps.indices)
        return TensorType(tuple(shape), x.dtype)

    def _check(self, axis: int, taps: AxisTaps, x: TensorType) -> None:
        lengths = {len(row) for row in taps.indices} | {len(row) for row in taps.weights}
        if len(taps.indices) != len(taps.weights) or len(lengths) > 1 or 0 in lengths:
            raise ValueError(f"Interp: axis {axis} has rows of different lengths; give one weight per index")
        indices = taps.index_array
        if indices.size and (indices.min() < 0 or indices.max() >= x.shape[axis]):
            raise ValueError(f"Interp: axis {axis} reads outside of input {x}")

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """Along axes with taps, the range from the least to the greatest index."""
        lo, hi = boxes.lo.copy(), boxes.hi.copy()
        for axis, taps in enumerate(self.taps):
            if taps is not None:
                lo[:, axis], hi[:, axis] = taps.ranges(boxes.lo[:, axis], boxes.hi[:, axis])
        return settle(boxes, lo, hi, ins[0].shape)

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """Axis by axis, in float64 throughout."""
        shape = box_shape(box)
        if 0 in shape:
            return np.empty(shape, out.dtype)
        region = self.region(0, box, ins, out)
        x = crop(slabs[0], region).astype(FLOAT64)
        for axis, taps in enumerate(self.taps):
            if taps is not None:
                rows = slice(int(box.lo[0, axis]), int(box.hi[0, axis]))
                x = _weigh(x, axis, taps.index_array[rows] - region.lo[0, axis], taps.weight_array[rows])
        return round_to(x, out.dtype)

    def flops(self, ins: Sequence[TensorType], out: TensorType) -> int:
        """As `evaluate` does it: axis by axis, each over the extents reached so far."""
        shape, total = list(ins[0].shape), 0
        for axis, taps in enumerate(self.taps):
            if taps is not None:
                shape[axis] = out.shape[axis]
                total += 2 * taps.index_array.shape[1] * int(np.prod(shape))
        return total


def _weigh(x: np.ndarray, axis: int, indices: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weighted sum along one axis."""
    column = [1] * x.ndim
    column[axis] = len(indices)
    terms = (np.take(x, i, axis) * w.reshape(column) for i, w in zip(indices.T, weights.T, strict=True))
    total = next(terms)
    for term in terms:
        total += term
    return total
