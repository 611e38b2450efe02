"""Winograd convolution F(m×m, 3×3), stride 1, two spatial dimensions, in groups of tiles that stay in cache.

A tile is m×m output pixels; n = m + 2. For G tiles at a time, in the worker's scratch:

    V[n²][G/T][C/v][T][v]  =  Bᵀ d B of every tile d of the input
    M[n²][G/T][M/v][T][v]  =  n² matrix products with the transformed weights
    output                 =  Aᵀ M A, bias, epilogue

The products take m²·9/n² of a direct convolution's multiplications: a quarter for m = 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.conv import Conv
from brickrt.ops.cpu.emit import Fn
from brickrt.ops.cpu.epilogue import Epilogue
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.tiles import common_cut
from brickrt.ops.cpu.winograd_body import WinogradBody
from brickrt.ops.cpu.winograd_math import transform_weights
from brickrt.ops.types import Boxes

L2 = 1 << 20  # bytes that transformed weights may take to stay close to a core


@dataclass(frozen=True)
class WinogradKernel(Kernel):
    """`shape_class` is (align, tiles, blocks): `align` as in `choose_tile`, then the most tiles and the most blocks of
    output channels in a box."""

    op: Conv

    @classmethod
    def tile_edge(cls) -> int:
        """m."""
        raise NotImplementedError

    @classmethod
    def classify(
        cls, op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes, isa: Isa
    ) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        align = common_cut(boxes, 1, out.shape[1], isa.lanes)
        tiles = (-(-boxes.extents[:, 2:] // cls.tile_edge())).prod(axis=1)
        blocks = -(-boxes.hi[:, 1] // isa.lanes) - boxes.lo[:, 1] // isa.lanes
        return np.zeros(len(boxes), np.int64), [(align, int(tiles.max(initial=1)), int(blocks.max(initial=1)))]

    @property
    def m(self) -> int:
        return self.tile_edge()

    @property
    def n(self) -> int:
        return self.m + 2

    @property
    def lanes(self) -> int:
        return self.isa.lanes

    @property
    def blocks_in(self) -> int:
        return self.ins[0].channel_blocks

    @property
    def most_blocks(self) -> int:
        return self.shape_class[2]

    @property
    def ob(self) -> int:
        """Blocks of output channels of a register tile."""
        align, blocks = self.shape_class[0], self.out.channel_blocks
        return 2 if blocks >= 2 and align % 2 == 0 else 1

    @property
    def t(self) -> int:
        """Tiles of a register tile: as many as registers allow, but not much padding."""
        most, tiles = min((self.isa.registers - self.ob - 2) // self.ob, 24), self.shape_class[1]
        padded = {t: -(-tiles // t) * t for t in range(most, 3, -1)}
        return next(t for t in padded if padded[t] <= 1.05 * min(padded.values()))

    @property
    def group(self) -> int:
        """Tiles transformed at a time: one register tile while the weights stay in L2 beside it, else a few."""
        blocks, weights = -(-self.shape_class[1] // self.t), self.weight_floats * 4
        if weights <= L2:
            return self.t
        return self.t * (blocks if blocks <= 4 else 2 if weights <= 4 * L2 else 3)

    @property
    def weight_floats(self) -> int:
        return self.ins[0].shape[1] * self.out.shape[1] * self.n**2

    @property
    def plane_in(self) -> int:
        """Floats from one of the n² planes of V to the next: an odd number of vectors, to spread over the cache."""
        return (self.blocks_in * self.group + 1) * self.lanes

    @property
    def plane_out(self) -> int:
        return (self.most_blocks * self.group + 1) * self.lanes

    @property
    def workspace(self) -> int:
        return 4 * self.n**2 * (self.plane_in + self.plane_out)

    @cached_property
    def epilogue(self) -> Epilogue:
        first = 2 + self.op.bias
        return Epilogue(self.op.epilogue, first, self.ins[first:], self.out, self.lanes)

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        """Weights as [n²][tile of OB blocks][C][OB*lanes], the bias up to whole tiles."""
        width = self.ob * self.lanes
        tiles = -(-self.out.shape[1] // width)
        missing = tiles * width - self.out.shape[1]
        if i == 1:
            u = transform_weights(array, self.m, np.float32)
            u = np.pad(u, [(0, 0), (0, missing), (0, 0)]) if missing else u
            return u.reshape(self.n**2, tiles, width, -1).swapaxes(2, 3)
        if i == 2 and self.op.bias:
            return np.pad(array, (0, missing))
        return self.epilogue.pack(i, array)

    def emit(self, f: Fn) -> None:
        WinogradBody(self, f).emit()


@dataclass(frozen=True)
class Winograd4Kernel(WinogradKernel):
    @classmethod
    def tile_edge(cls) -> int:
        return 4


@dataclass(frozen=True)
class Winograd2Kernel(WinogradKernel):
    @classmethod
    def tile_edge(cls) -> int:
        return 2
