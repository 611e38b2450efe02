"""A tensor in memory: what the kernels of all devices know of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.ops.types import TensorType


@dataclass(frozen=True)
class Strided:
    """A tensor; strides are in elements, one per logical dimension."""

    type: TensorType
    strides: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> np.dtype:
        return self.type.dtype

    @property
    def rank(self) -> int:
        return self.type.rank

    def byte_offsets(self, indices: np.ndarray) -> np.ndarray:
        """Bytes from the virtual origin to the elements at `indices` [n, d]."""
        return indices @ np.asarray(self.strides, np.int64) * self.dtype.itemsize


def row_major(extents: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor without gaps whose last dimension is innermost."""
    return tuple(math.prod(extents[k + 1 :]) for k in range(len(extents)))
