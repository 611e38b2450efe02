"""How a tensor lies in memory, as far as kernels of all devices agree on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.ops.types import TensorType


@dataclass(frozen=True)
class Strided:
    """A tensor in memory; strides are in elements, one per dimension."""

    type: TensorType
    strides: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the tensor."""
        return self.type.shape

    @property
    def dtype(self) -> np.dtype:
        """Type of its elements."""
        return self.type.dtype

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return self.type.rank

    def byte_offsets(self, indices: np.ndarray) -> np.ndarray:
        """Bytes from the virtual origin to the elements at `indices` [n, d]."""
        return indices @ np.asarray(self.strides, np.int64) * self.dtype.itemsize


def row_major(extents: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor without gaps whose last dimension is innermost."""
    return tuple(math.prod(extents[k + 1 :]) for k in range(len(extents)))
