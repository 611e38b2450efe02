"""The first pass of long reductions: segments of the last axis are combined, and a second reduction finishes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from brickrt.ops.base import Op, Slab, crop
from brickrt.ops.definitions.expressions import compute_type, round_to
from brickrt.ops.operators.reduce import COMBINE
from brickrt.ops.regions import box_shape, settle
from brickrt.ops.types import Boxes, TensorType


class Segmented(Op):
    """Base of the operators that reduce segments of `length` elements along the last axis to `results` numbers each.

    Outputs i · results … (i + 1) · results - 1 are those of inputs i · length … (i + 1) · length - 1; the last segment
    may be shorter.
    """

    length: int
    results: ClassVar[int] = 1

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """The results of each segment."""
        (x,) = ins
        if not x.rank or self.length < 1:
            raise ValueError(f"{self.name} of segments of {self.length} elements of input {x}")
        return TensorType((*x.shape[:-1], self.segments(x.shape[-1]) * self.results), x.dtype)

    def segments(self, extent: int) -> int:
        """How many segments so many elements have."""
        return -(-extent // self.length)

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """All elements of the box's segments."""
        lo, hi = boxes.lo.copy(order="K"), boxes.hi.copy(order="K")
        lo[:, -1] = lo[:, -1] // self.results * self.length
        hi[:, -1] = -(-hi[:, -1] // self.results) * self.length
        return settle(boxes, lo, hi, ins[0].shape)

    def made_of(self, boxes: Boxes) -> Boxes:
        """The boxes of the output that boxes of the input hold, which begin and end with whole segments."""
        lo, hi = boxes.lo.copy(order="K"), boxes.hi.copy(order="K")
        lo[:, -1] = lo[:, -1] // self.length * self.results
        hi[:, -1] = -(-hi[:, -1] // self.length) * self.results
        return Boxes(lo, hi)


@dataclass(frozen=True)
class PartialReduce(Segmented):
    """Combines the elements of each segment."""

    name: ClassVar[str] = "Segments"
    combine: Literal["sum", "prod", "max", "min"]
    length: int

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """Combines in float64 from segment to segment."""
        shape = box_shape(box)
        if 0 in shape:
            return np.empty(shape, out.dtype)
        x = crop(slabs[0], self.region(0, box, ins, out)).astype(compute_type(out.dtype))
        starts = np.arange(shape[-1]) * self.length
        return round_to(COMBINE[self.combine].reduceat(x, starts, axis=-1, dtype=x.dtype), out.dtype)

    def flops(self, ins: Sequence[TensorType], out: TensorType) -> int:
        """One per element of the input."""
        return ins[0].size
