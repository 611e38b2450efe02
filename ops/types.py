"""Tensor types, and boxes: index ranges of tensors, many at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

Shape = tuple[int, ...]
MOST_DIMENSIONS = 32
"""The rank that NumPy broadcasts and kernels' argument tables have room for."""
_EXTENT_TYPES = frozenset({int})


@cache
def name_of(dtype: np.dtype) -> str:
    """The name of an element type, which NumPy makes anew each time it is asked."""
    return dtype.name


def is_floating(dtype: np.dtype) -> bool:
    """Whether a type is floating point. NumPy has bfloat16 through ml_dtypes only, whose `kind` does not say so."""
    return dtype.kind == "f" or name_of(dtype) == "bfloat16"


class OpenNumber:
    """What stands for an extent that is not known: types hold it as it is."""


@dataclass(frozen=True)
class TensorType:
    """Shape and element type of a tensor whose shape is known."""

    shape: Shape
    dtype: np.dtype

    def __post_init__(self) -> None:
        if type(self.shape) is not tuple or not _EXTENT_TYPES.issuperset(map(type, self.shape)):
            object.__setattr__(self, "shape", tuple(d if isinstance(d, OpenNumber) else int(d) for d in self.shape))
        if not isinstance(self.dtype, np.dtype):
            object.__setattr__(self, "dtype", np.dtype(self.dtype))

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, without gaps."""
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{name_of(self.dtype)}[{','.join(map(str, self.shape))}]"

    __repr__ = __str__


@dataclass(frozen=True)
class Boxes:
    """`n` boxes of a `d`-dimensional tensor: half-open index ranges, int64 arrays of shape [n, d].

    A single box is the case n = 1. Region maps take many boxes at once, so that lowering stays in NumPy.
    """

    lo: np.ndarray
    hi: np.ndarray

    @staticmethod
    def whole(shape: Sequence[int], n: int = 1) -> Boxes:
        """`n` copies of the box that covers all of `shape`."""
        hi = np.tile(np.asarray(shape, np.int64).reshape(1, -1), (n, 1))
        return Boxes(np.zeros_like(hi), hi)

    def copies(self, n: int) -> Boxes:
        """`n` boxes like each one here, those like the first first. Ends along an axis lie together in memory, as NumPy
        is quick with many."""
        return Boxes(*(np.repeat(ends.T, n, axis=1).T for ends in (self.lo, self.hi)))

    @staticmethod
    def one(lo: Sequence[int], hi: Sequence[int]) -> Boxes:
        """A single box from its ends."""
        return Boxes(np.asarray([lo], np.int64).reshape(1, -1), np.asarray([hi], np.int64).reshape(1, -1))

    def __len__(self) -> int:
        return self.lo.shape[0]

    def __getitem__(self, k: int) -> Boxes:
        return Boxes(self.lo[k : k + 1], self.hi[k : k + 1])

    def take(self, which: np.ndarray) -> Boxes:
        """The boxes with these numbers."""
        return Boxes(self.lo[which], self.hi[which])

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return self.lo.shape[1]

    @property
    def extents(self) -> np.ndarray:
        """Elements along each dimension, [n, d]; never negative."""
        return np.maximum(self.hi - self.lo, 0)

    @cached_property
    def empty(self) -> np.ndarray:
        """Which boxes have no elements, [n]; also where 64 bits do not count the elements. Ends that are asked about
        are not changed any more."""
        return np.logical_or.reduce(self.hi <= self.lo, axis=1)

    @cached_property
    def some_empty(self) -> bool:
        """Whether any box has no elements."""
        return bool((self.hi <= self.lo).any())

    @property
    def volumes(self) -> np.ndarray:
        """Elements per box, [n]."""
        return self.extents.prod(axis=1)

    def clip(self, shape: Sequence[int]) -> Boxes:
        """The parts inside a tensor of `shape`; an empty part has lo == hi inside the tensor."""
        top = np.asarray(shape, np.int64)
        lo = np.minimum(np.maximum(self.lo, 0), top)  # half the price of np.clip
        return Boxes(lo, np.maximum(np.minimum(self.hi, top), lo))

    def union(self, other: Boxes) -> Boxes:
        """The smallest boxes around both, pairwise; an empty box adds nothing."""
        if not (self.some_empty or other.some_empty):
            return Boxes(np.minimum(self.lo, other.lo), np.maximum(self.hi, other.hi))
        empty, other_empty = self.empty[:, None], other.empty[:, None]
        lo = np.where(empty, other.lo, np.where(other_empty, self.lo, np.minimum(self.lo, other.lo)))
        hi = np.where(empty, other.hi, np.where(other_empty, self.hi, np.maximum(self.hi, other.hi)))
        return Boxes(lo, hi)

    def slices(self, k: int = 0, origin: Sequence[int] | None = None) -> tuple[slice, ...]:
        """Box `k` as slices of an array whose first element lies at `origin` of the tensor."""
        base = origin if origin is not None else [0] * self.rank
        return tuple(slice(int(a - o), int(b - o)) for a, b, o in zip(self.lo[k], self.hi[k], base, strict=True))


def broadcast_region(boxes: Boxes, shape: Shape) -> Boxes:
    """The boxes of an operand of `shape` that NumPy broadcasting reads to produce `boxes` of the result."""
    rank = len(shape)
    lo, hi = boxes.lo[:, boxes.rank - rank :].copy(order="K"), boxes.hi[:, boxes.rank - rank :].copy(order="K")
    for axis, extent in enumerate(shape):
        if extent == 1:
            lo[:, axis], hi[:, axis] = 0, 1
    return Boxes(lo, hi)
