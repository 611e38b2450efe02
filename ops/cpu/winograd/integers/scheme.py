"""What lies where in Winograd kernels of integers: two channels of the input are a word, in V and in weights.

V[n²][z][G/T][C/2v][T][v]                     words of transformed inputs, 16 bits each
weights[tile of OB blocks][C/2][tap][OB*v][2]  bytes as they are; they are transformed for each group of tiles
M[n²][Z][G/T][M/v][T][v]                      int32
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

import numpy as np

from brickrt.ops.cpu.winograd.scheme import WinogradScheme


class IntegerScheme(WinogradScheme):
    """A convolution of bytes without strides, of a blocked input."""

    step_channels: ClassVar[int] = 2

    @property
    def depth_in(self) -> int:
        """Vectors of V per tile: of two blocks each."""
        return -(-self.blocks_in // self.step_channels)

    @property
    def weights_at(self) -> int:
        """See `WinogradScheme`: behind V and M, as no tile is suspect."""
        return self.suspects_at

    @property
    def raw_elements(self) -> int:
        """See `WinogradScheme`: an odd channel has one beside it whose weights are zero."""
        return self._padded * self.steps * self.step_channels * self.taps

    def packing(self, i: int) -> Hashable:
        """See `Kernel`: words of channels."""
        return super().packing(i), self.step_channels

    def pack_parts(self, i: int, array: np.ndarray) -> Sequence[np.ndarray]:
        """See the top of this file; the bias up to whole tiles."""
        if i != 1:
            return super().pack_parts(i, array)
        w = self._walked(array)
        w = np.pad(w, [(0, 0), (0, -w.shape[1] % self.step_channels), *[(0, 0)] * (w.ndim - 2)])
        tiles = w.reshape(-1, self.ob * self.lanes, self.steps, self.step_channels, self.taps)
        return [np.ascontiguousarray(tiles.transpose(0, 2, 4, 1, 3))]
