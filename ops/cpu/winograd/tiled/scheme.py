"""What lies where in Winograd kernels whose products tile registers add: float32 in three parts of bfloat16 each.

    U[n²][tile of OB blocks][swept tap][unit][part][OB][row][lanes]   words of two channels of the input: a unit has 32
    back[M]                                                           powers of two

The weights of an output channel are packed times a power of two that makes their largest about 1, and its outputs are
taken back: so none of their parts are so small that tile registers count them as zero. Tiles of inputs that are tiny
are computed directly, as those are whose inputs are too far from each other (`tile_check.py`).
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property

import numpy as np

from brickrt.ops.cpu.amx.factors import split_weights
from brickrt.ops.cpu.amx.sizes import ROWS, SPLIT, TILE_BYTES
from brickrt.ops.cpu.winograd.scheme import FLOAT32, WinogradScheme
from brickrt.ops.cpu.winograd.sizes import MOST_BLOCKS, TILE_ROWS, Sizes, choose_tiled_sizes

TILE_FLOATS = TILE_BYTES // FLOAT32.itemsize  # of sums, and of a register tile's block of channels in V


class TiledScheme(WinogradScheme):
    """A convolution without strides, of a blocked input."""

    @property
    def units(self) -> int:
        """Rows of tiles that the input's channels take."""
        return -(-self.ins[0].shape[1] // SPLIT.unit)

    @cached_property
    def sizes(self) -> Sizes:
        """See `WinogradScheme`."""
        if self.decided:
            return self.decided[0]
        _, _, tiles, depth, *_ = self.shape_class
        return choose_tiled_sizes(tiles, depth, self.weight_bytes)

    @property
    def room(self) -> tuple[int, int]:
        """See `WinogradScheme`."""
        return self.decided[2] if self.decided else (MOST_BLOCKS * TILE_ROWS, super().room[1])

    @property
    def counts(self) -> list[int]:
        """See `WinogradScheme`."""
        return [TILE_ROWS]

    @property
    def parts_at(self) -> int:
        """Elements before the parts of two planes of V (`parts.py`)."""
        return self.weights_at

    @property
    def part_tiles(self) -> int:
        """Register tiles that there is room for in a plane's parts."""
        return self.ring * self.room[0] // TILE_ROWS

    @property
    def workspace(self) -> int:
        """See `WinogradScheme`."""
        return FLOAT32.itemsize * self.parts_at + 2 * self.part_tiles * self.units * SPLIT.parts * TILE_BYTES

    @property
    def panel_elements(self) -> int:
        """Elements of the weights of a plane for a tile of blocks at a swept tap."""
        return self.units * SPLIT.parts * self.ob * TILE_FLOATS

    @property
    def returns_at(self) -> int:
        """Elements before what takes outputs back."""
        panels = self.axes.planes * self.axes.swept.r * (self._padded // (self.ob * self.lanes))
        return panels * self.panel_elements

    @property
    def transformed_elements(self) -> int:
        """See `WinogradScheme`."""
        return self.returns_at + self._padded

    def packing(self, i: int) -> Hashable:
        """See `Kernel`: in parts."""
        return super().packing(i), SPLIT.parts

    def _transform(self, w: np.ndarray, out: np.ndarray) -> None:
        """[M, C, swept, down, across] → U and what takes outputs back."""
        back = out[self.returns_at :]
        back[:] = channel_sizes(w)
        planes, taps, count = self.axes.planes, self.axes.swept.r, len(w) // (self.ob * self.lanes)
        shape = (planes, taps, self.units, ROWS, self.ob, self.lanes)
        u = (
            out[: self.returns_at]
            .view(np.uint32)
            .reshape(planes, count, taps, self.units, SPLIT.parts, self.ob, ROWS, -1)
        )
        missing = self.units * SPLIT.unit - w.shape[1]
        for k, tile in enumerate(self._tiles(w / back.reshape(-1, 1, 1, 1, 1))):
            rows = np.pad(tile[:, :, 0], [(0, 0), (0, 0), (0, missing), (0, 0)])
            for part, words in enumerate(split_weights(SPLIT, rows.reshape(-1, rows.shape[-1]))):
                u[:, k, :, :, part] = words.reshape(shape).swapaxes(3, 4)


def channel_sizes(w: np.ndarray) -> np.ndarray:
    """The powers of two next below the largest magnitudes of output channels' weights, or near it, [M]; 1 where these
    are zero or not finite."""
    largest = np.abs(w).max(axis=tuple(range(1, w.ndim)))
    usable = np.isfinite(largest) & (largest > 0)
    exponents = np.frexp(np.where(usable, largest, 1))[1] - 1
    return np.maximum(np.ldexp(np.float32(1), exponents), np.finfo(np.float32).tiny)
