"""The first pass of a mean and a variance: the sum of each segment, and how far its elements are from their own mean.

For parts of n elements with sum s and squares q of deviations from s / n, and for any m,

    Σ (x - m)² = Σ over the parts of q + n · (s / n - m)²

(Chan, Golub, LeVeque 1983), so that what is left of the tensor is enough for its mean, and then for its variance. All
that is added up are squares: nothing cancels, however large the mean is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Slab, crop
from brickrt.ops.definitions.expressions import round_to
from brickrt.ops.operators.partial_reduce import Segmented
from brickrt.ops.regions import box_shape
from brickrt.ops.types import Boxes, TensorType, is_floating


@dataclass(frozen=True)
class PartialMoments(Segmented):
    """The sum of each segment, and then the sum of the squares of all deviations from its mean.

    Both are float64: there are few of them, and where means are large their last bits still tell segments apart.
    """

    name: ClassVar[str] = "Moments"
    results: ClassVar[int] = 2
    length: int

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """Two outputs per segment."""
        out = super().infer(ins)
        if not is_floating(out.dtype):
            raise ValueError(f"{self.name} of {ins[0]}: they are of floating-point numbers")
        return TensorType(out.shape, np.dtype(np.float64))

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """In float64, segment by segment."""
        shape = box_shape(box)
        if 0 in shape:
            return np.empty(shape, out.dtype)
        x = crop(slabs[0], self.region(0, box, ins, out)).astype(np.float64)
        starts = np.arange(0, x.shape[-1], self.length)
        counts = np.diff(starts, append=x.shape[-1])
        with np.errstate(all="ignore"):
            sums = np.add.reduceat(x, starts, axis=-1)
            deviations = x - np.repeat(sums / counts, counts, axis=-1)
            squares = np.add.reduceat(deviations * deviations, starts, axis=-1)
        both = np.stack([sums, squares], axis=-1).reshape(*x.shape[:-1], -1)
        first = int(box.lo[0, -1]) % self.results
        return round_to(both[..., first : first + shape[-1]], out.dtype)

    def flops(self, ins: Sequence[TensorType], out: TensorType) -> int:
        """Two sums, a difference and a square per element."""
        return 4 * ins[0].size


def element_type(dtype: np.dtype) -> np.dtype:
    """The type in which kernels add up elements of a floating-point type."""
    return dtype if dtype.itemsize >= 4 else np.dtype(np.float32)
