"""Linear and cubic Resize as weighted sums along one axis after the other."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Op, Slab, crop
from brickrt.ops.definitions.expressions import FLOAT64, round_to
from brickrt.ops.regions import TableRange, box_shape, settle
from brickrt.ops.types import Boxes, TensorType

Rows = Sequence[Sequence[float]] | np.ndarray  # of a table [outputs, taps]


@dataclass(frozen=True, eq=False, repr=False)
class AxisTaps:
    """Along an axis, output i is the sum over k of weights[i][k] · input[indices[i][k]]; indices are in range.

    Tables of long axes are long: they are kept as arrays, and compared by a digest."""

    indices: Rows
    weights: Rows

    @cached_property
    def index_array(self) -> np.ndarray:
        """The indices as int64 [outputs, taps]."""
        return _table(self.indices, np.int64)

    @cached_property
    def weight_array(self) -> np.ndarray:
        """The weights as float64 [outputs, taps]."""
        return _table(self.weights, np.float64)

    @cached_property
    def digest(self) -> str:
        """A digest of all numbers, and of how many there are."""
        tables = self.index_array, self.weight_array
        told = b"".join(f"{table.shape}".encode() + table.tobytes() for table in tables)
        return hashlib.blake2b(told, digest_size=16).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AxisTaps) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"AxisTaps({len(self.index_array)} outputs of {self.count} taps, {self.digest})"

    @cached_property
    def ranges(self) -> TableRange:
        """What ranges of outputs read."""
        indices = self.index_array
        return TableRange(indices.min(axis=1), indices.max(axis=1), int(indices.max(initial=-1)) + 1)

    @property
    def count(self) -> int:
        """Taps of an output; one where there are no outputs."""
        return self.index_array.shape[1]


def _table(rows: Rows, dtype: type) -> np.ndarray:
    """An array [outputs, taps] that nobody may write to. Raises ValueError where rows differ in length."""
    array: np.ndarray = np.asarray(rows, dtype)
    array = (array.reshape(0, 1) if array.shape == (0,) else array).view()
    array.flags.writeable = False
    return array


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
                shape[axis] = len(taps.index_array)
        return TensorType(tuple(shape), x.dtype)

    def _check(self, axis: int, taps: AxisTaps, x: TensorType) -> None:
        try:
            indices, weights = taps.index_array, taps.weight_array
        except ValueError:  # NumPy makes no array of rows that differ
            indices = weights = np.zeros(0)
        if indices.ndim != 2 or indices.shape != weights.shape or not indices.shape[1]:
            raise ValueError(f"Interp: axis {axis} has rows of different lengths; give one weight per index")
        if indices.size and (indices.min() < 0 or indices.max() >= x.shape[axis]):
            raise ValueError(f"Interp: axis {axis} reads outside of input {x}")

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """Along axes with taps, the range from the least to the greatest index."""
        lo, hi = boxes.lo.copy(order="K"), boxes.hi.copy(order="K")
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
                total += 2 * taps.count * math.prod(shape)
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
