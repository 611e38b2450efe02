"""How a tensor lies in a GPU's memory, as far as device functions depend on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from brickrt.ops.operand import Strided, row_major
from brickrt.ops.types import TensorType

VECTOR = 16  # bytes of the widest load


@dataclass(frozen=True)
class Operand(Strided):
    """A tensor in memory: element i lies at virtual origin + i · strides, in elements, channels included.

    `align` is a power of two, at most 16, that divides the virtual origin's address and all strides in bytes but those
    of 1 element: what a vector load along the dimension of stride 1 may assume of the beginning of a row. `shared`
    tells that it lies in the block's shared memory, where products read their first factor in place
    (`plan/geometry/in_place.py`).
    """

    align: int = VECTOR
    shared: bool = False

    @property
    def vector(self) -> int:
        """Elements of the widest load along the dimension of stride 1, at indices that are multiples of it."""
        return max(1, self.align // self.dtype.itemsize)

    def broadcast_strides(self, rank: int) -> tuple[int, ...]:
        """Strides along the dimensions of an output of this rank that the tensor broadcasts to: 0 where it repeats."""
        own = (0 if extent == 1 else stride for extent, stride in zip(self.shape, self.strides))
        return (0,) * (rank - self.rank) + tuple(own)


def dense(
    kind: TensorType, layout: str = "plain", extents: Sequence[int] | None = None, align: int = VECTOR
) -> Operand:
    """A tensor without gaps: "plain" is row-major, "last" has the channels (axis 1) innermost.

    `extents` are those of the storage where it holds only part of the tensor (a padded brick's scratch); `align` is the
    alignment of the virtual origin's address, in bytes.
    """
    extents = tuple(kind.shape if extents is None else extents)
    strides = row_major(extents)
    if layout == "last" and len(extents) >= 2:
        outer = row_major((extents[0], *extents[2:], extents[1]))
        strides = (outer[0], 1, *outer[1:-1])
    return Operand(kind, strides, alignment(kind, extents, strides, align))


def alignment(kind: TensorType, extents: Sequence[int], strides: Sequence[int], align: int) -> int:
    """The largest power of two up to `align` that divides all strides in bytes, but those of axes of one element."""
    steps = [s * kind.dtype.itemsize for s, e in zip(strides, extents) if s != 1 and e > 1]
    return math.gcd(VECTOR, align, *steps)
