"""How a tensor lies in memory: the part of a kernel's identity that is not the operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.ops.operand import Strided, row_major
from brickrt.ops.types import TensorType


@dataclass(frozen=True)
class Operand(Strided):
    """With `block` > 1 the tensor is blocked: axis 1 counts channels, `strides[1]` is the stride of a block of `block`
    channels, and the channels of a block are adjacent. Element (n, c, y, x) lies at
    n·s0 + (c // block)·s1 + c % block + y·s2 + x·s3.
    """

    block: int = 1

    @property
    def channel_blocks(self) -> int:
        """Blocks of channels, the last of which may be partial."""
        return -(-self.shape[1] // self.block)

    def byte_offsets(self, indices: np.ndarray) -> np.ndarray:
        """Channels of a blocked tensor must be the first of a block."""
        if self.block > 1:
            indices = indices.copy()
            indices[:, 1] //= self.block
        return super().byte_offsets(indices)


def dense(kind: TensorType, block: int = 1, extents: Sequence[int] | None = None) -> Operand:
    """The operand stored without gaps: [N, C/block, spatial…, block], or row-major where block is 1.

    `extents` are those of the storage where it holds only part of the tensor (a padded brick's scratch).
    """
    extents = list(kind.shape if extents is None else extents)
    if block == 1:
        return Operand(kind, row_major(extents))
    extents[1] = -(-extents[1] // block)
    return Operand(kind, row_major([*extents, block])[:-1], block)


def to_blocked(array: np.ndarray, block: int) -> np.ndarray:
    """[N, C, spatial…] as [N, ceil(C/block), spatial…, block]; the tail lanes are zero."""
    n, c, *spatial = array.shape
    blocks = -(-c // block)
    padded = np.zeros((n, blocks * block, *spatial), array.dtype)
    padded[:, :c] = array
    split = padded.reshape(n, blocks, block, *spatial)
    return np.ascontiguousarray(np.moveaxis(split, 2, -1))
