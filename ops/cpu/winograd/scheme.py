"""Winograd convolution in groups of tiles that stay in cache: F(m×m, r×r), F(m, r) along one dimension, and either in
three dimensions, where the taps of the outermost are swept (`axes.py` tells which dimension is what).

A tile is m×m output pixels from n×n inputs; n = m + r - 1. For G tiles at a time, in the worker's scratch:

    V[n²][z][G/T][s²][C/v][T][v]  =  Bᵀ d B of every tile d of the input, for the planes z that Z output planes read,
                                     for each residue of the s² that a stride has
    M[n²][Z][G/T][M/v][T][v]  =  n² matrix products with the transformed weights, added up over swept taps and residues
    output                    =  Aᵀ M A, bias, epilogue

F(4×4, 3×3) takes a quarter of a direct convolution's multiplications. V is a ring: planes that the next Z outputs read
again are transformed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.magnitudes import FOUR
from brickrt.ops.cpu.operands.epilogue import Epilogue
from brickrt.ops.cpu.products.few_outputs import power_of_two
from brickrt.ops.cpu.weighted_kernel import WeightedKernel
from brickrt.ops.cpu.winograd.axes import Axes, axes_of, known_axes
from brickrt.ops.cpu.winograd.sizes import (
    ANEW,
    INTEGERS,
    PAIRED,
    PAIRED_ONCE,
    ROW_TILES,
    STORED,
    Sizes,
    choose_sizes,
    is_near,
    most_blocks,
    register_tiles,
)
from brickrt.ops.cpu.winograd.transforms import (
    apart_by_residue,
    must_not_transform,
    paired_weights,
    plane_sizes,
    returning_exponents,
    transformed_tiles,
    walked,
)
from brickrt.ops.operators.conv import Conv

ROOMY_BLOCKS = 32  # of channels, that there is always room for
FLOAT32 = np.dtype(np.float32)  # that sums, and weights in memory, are


@dataclass(frozen=True)
class WinogradScheme(WeightedKernel):
    """`shape_class` is (edge, align, tiles, depth, blocks, raw): tiles of `edge` outputs, m, along each tiled
    dimension; `align` as in `choose_tile`; then the most that a box has of tiles in a plane (of all its images), of
    planes, and of blocks of output channels; and where weights are transformed, or that channels are paired
    (`sizes.py`). `decided` are the `sizes`, `ob`, and for how many tiles and blocks there is `room`."""

    op: Conv
    effort = 5
    sized = True
    compiles_quickly = True
    step_channels: ClassVar[int] = 1  # of the input, that a multiplication takes

    @property
    def open_classes(self) -> Sequence[int]:
        """See `Kernel`: what is decided by them is all that matters."""
        return 1, 2, 3, 4

    @property
    def knows_channels(self) -> bool:
        """See `Kernel`: those that are gathered."""
        return self.gathers

    def decisions(self) -> tuple[Any, ...]:
        """See `Kernel`."""
        return self.sizes, self.ob, self.room

    def opened_op(self, take: Callable[[int], Any]) -> tuple[Op, tuple[Any, ...]]:
        """See `Kernel`: how many tiles make a register tile and a group are sizes, and for how many there is room."""
        sizes, ob, (tiles, blocks) = self.decided or self.decisions()
        return self.op, (replace(sizes, t=take(sizes.t), group=take(sizes.group)), ob, (take(tiles), take(blocks)))

    @property
    def edge(self) -> int:
        """Outputs of a tile along each tiled dimension, m."""
        return self.shape_class[0]

    @property
    def raw(self) -> bool:
        """Whether weights are packed as they are alone (`raw_products.py`)."""
        return self.shape_class[5] not in (STORED, PAIRED)

    @property
    def paired(self) -> bool:
        """Whether a third of the products are of pairs of channels (`paired/products.py`)."""
        return self.shape_class[5] in (PAIRED, PAIRED_ONCE)

    @property
    def anew(self) -> bool:
        """Whether raw weights are transformed for each group of tiles, not once for a box (`raw_products.py`)."""
        return self.shape_class[5] in (ANEW, INTEGERS)

    @property
    def raw_type(self) -> np.dtype:
        """The type of weights as they are."""
        return self.ins[1].dtype if self.raw else FLOAT32

    @property
    def taps(self) -> int:
        """Taps of the kernel, along all dimensions."""
        return math.prod(self.op.kernel)

    @cached_property
    def axes(self) -> Axes:
        """How the spatial dimensions are walked."""
        made = axes_of if self.decided else known_axes  # sizes are no keys of a cache
        return made(self.op, self.ins[0].shape[2:], self.edge)

    @property
    def blocks_in(self) -> int:
        """Blocks of input channels."""
        return self.ins[0].channel_blocks

    @property
    def steps(self) -> int:
        """Multiplications that the channels of the input take."""
        return -(-self.ins[0].shape[1] // self.step_channels)

    @property
    def gathers(self) -> bool:
        """Whether the input has so few channels that it lies plain: then lanes are shared by channels and residues."""
        return self.ins[0].block == 1

    @property
    def depth_in(self) -> int:
        """Vectors of V per tile: the blocks of all residues."""
        if self.gathers:
            return -(-self.axes.residues * self.ins[0].shape[1] // self.lanes)
        return self.axes.residues * self.blocks_in

    @property
    def ob(self) -> int:
        """Blocks of output channels of a register tile."""
        if self.decided:
            return self.decided[1]
        if self.paired:
            return 1
        return 2 if self.out.channel_blocks >= 2 and self.shape_class[1] % 2 == 0 else 1

    @cached_property
    def sizes(self) -> Sizes:
        """How many tiles are worked on at a time."""
        if self.decided:
            return self.decided[0]
        isa, (tiles, depth) = self.isa, self.shape_class[2:4]
        nbytes, paced = self.weight_bytes, isa.shares_chunks
        return choose_sizes(tiles, depth, self.ob, isa.registers, nbytes, self.anew, self.paired, paced)

    @cached_property
    def room(self) -> tuple[int, int]:
        """Tiles of a plane and blocks of outputs that V and M have room for: few numbers, so that boxes share code."""
        if self.decided:
            return self.decided[2]
        near, few = is_near(self.weight_bytes, self.isa.registers), most_blocks(self.isa.registers) * self.most
        tiles = self.most if near and not self.anew else few if self.group <= few else ROW_TILES
        return tiles, min(self.out.channel_blocks, power_of_two(max(ROOMY_BLOCKS, self.shape_class[4])))

    @property
    def t(self) -> int:
        """Tiles of a register tile, one of `counts`."""
        return self.sizes.t

    @property
    def counts(self) -> list[int]:
        """How many tiles a register tile may have."""
        return register_tiles(self.ob, self.isa.registers, self.paired)

    @property
    def most(self) -> int:
        """Tiles that a register tile has room for in V and M."""
        return self.counts[0]

    @property
    def group(self) -> int:
        """G, tiles of a plane transformed at a time."""
        return self.sizes.group

    @property
    def most_tiles(self) -> int:
        """The most tiles that a group has, in any kernel with this one's code."""
        return ROW_TILES if self.anew else most_blocks(self.isa.registers) * self.most

    @property
    def run(self) -> int:
        """Z, output planes computed at a time."""
        return self.sizes.run

    @property
    def ring(self) -> int:
        """Planes of the input that are held."""
        swept = self.axes.swept
        return min((self.run - 1) * swept.stride + swept.reach, swept.extent)

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of the transformed weights."""
        return 4 * self.ins[0].shape[1] * self.out.shape[1] * self.axes.planes * self.axes.residues * self.axes.swept.r

    @property
    def plane_in(self) -> int:
        """Floats from one of the n² planes of V to the next: an odd number of vectors, to spread over the cache."""
        return (self.ring * self.depth_in * self.room[0] + 1) * self.lanes

    @property
    def plane_out(self) -> int:
        """Floats from one of the n² planes of M to the next."""
        return (self.run * self.room[1] * self.room[0] + 1) * self.lanes

    @property
    def suspects_at(self) -> int:
        """Elements before the flags of `tile_ranges.py`: V, M, and room for a tile's inputs where they are gathered."""
        return self.axes.planes * (self.plane_in + self.plane_out + self.depth_in * self.lanes * self.gathers)

    @property
    def magnitudes_at(self) -> int:
        """Elements before the magnitudes of `tile_check.py`."""
        return self.suspects_at + self.lanes + self.ring * self.room[0]

    @property
    def row_pixel(self) -> int:
        """Elements from one pixel to the next of a row that `direct_tiles.py` copies."""
        return self.ins[0].channel_blocks * self.ins[0].block

    @property
    def pixels_at(self) -> int:
        """Elements before that row."""
        return self.magnitudes_at + self.axes.swept.r * self.axes.down.inputs * self.axes.across.inputs

    @cached_property
    def workspace(self) -> int:
        """All that phases leave for each other, elements of 4 bytes."""
        if self.anew:
            return 4 * (self.weights_at + self.axes.across.n * self.row_plane)
        beside = self.paired * (self._padded * (1 + self.axes.swept.r) + self.lanes)
        return 4 * (self.made_at + self.axes.planes * (self.whole_plane + beside) * self.raw)

    @property
    def triples(self) -> int:
        """How often there are three whole blocks of input channels, of which the second and the third are paired."""
        return self.ins[0].shape[1] // self.lanes // 3 if self.paired else 0

    @property
    def tile_values(self) -> int:
        """Numbers kept for a tile in a plane of the input: the products of its pairs for each of the n² planes, behind
        what takes its sums back."""
        return 1 + -(-self.axes.planes // FOUR) * FOUR

    @property
    def values_at(self) -> int:
        """Elements before what is known of tiles of paired channels, and behind that what is transformed of weights."""
        end = self.pixels_at + self.axes.across.inputs * self.row_pixel
        return -(-end // self.lanes) * self.lanes

    @property
    def weights_at(self) -> int:
        """Elements before what is transformed of weights."""
        values = self.tile_values * self.ring * self.room[0] * self.paired
        return self.values_at + -(-values // self.lanes) * self.lanes

    @property
    def made_at(self) -> int:
        """The same, and behind the flags of tiles of blocks that are transformed, where these are kept."""
        flags = -(-self.out.channel_blocks // self.ob) * self.keeps_workspace
        return self.weights_at + -(-flags // self.lanes) * self.lanes

    @property
    def row_plane(self) -> int:
        """Floats from one plane of weights to the next, of those of a row of planes: not a power of two."""
        return (self.axes.swept.r * self.steps * self.ob + 1) * self.lanes

    @property
    def whole_plane(self) -> int:
        """The same where all weights are transformed at once."""
        return self._padded * self.axes.swept.r * self.ins[0].shape[1] + self.lanes

    @cached_property
    def epilogue(self) -> Epilogue:
        """What is applied to the sums."""
        return Epilogue.of(self.op, self.ins, self.out, self.lanes)

    @property
    def transformed_elements(self) -> int:
        """Packed weights before those as they are; none of them raw."""
        if self.raw:
            return 0
        products = self.weight_bytes // 4 // self.out.shape[1] * self._padded
        return products + (self.axes.planes * self._padded * (1 + self.axes.swept.r) if self.paired else 0)

    @property
    def returns_at(self) -> int:
        """Elements before what takes sums of scaled channels back, [n²][block][lanes], if `paired`."""
        return self.weight_bytes // 4 // self.out.shape[1] * self._padded

    @property
    def pairs_at(self) -> int:
        """Elements before the sums of the products of their pairs, [n²][block][swept tap][lanes]."""
        return self.returns_at + self.axes.planes * self._padded

    @property
    def _padded(self) -> int:
        """Output channels up to whole tiles of blocks."""
        width = self.ob * self.lanes
        return -(-self.out.shape[1] // width) * width

    def pack_parts(self, i: int, array: np.ndarray) -> Sequence[np.ndarray]:
        """Weights as [n²][tile of OB blocks][swept tap][s²][C][OB*lanes], unless `raw`; then as they are, as [tile of
        OB blocks][C][tap][OB*lanes], and a number that is not 0 where they must not be transformed; where they are
        raw and `paired`, exponents of what takes sums back; the bias up to whole tiles."""
        if i == 1 and not self.raw:
            return [self._stored(array, lambda nbytes: np.empty(nbytes, np.uint8))]
        if i == 1:
            w = self._walked(array := array.astype(self.raw_type, copy=False))
            parts = [self._direct(w), must_not_transform(array)]
            if not self.paired:
                return parts
            return [*parts, returning_exponents(self._tiles(w), plane_sizes(self.axes)).astype(self.raw_type)]
        if i == 2 and self.op.bias:
            return [np.pad(array, (0, self._padded - self.out.shape[1]))]
        return super().pack_parts(i, array)

    def pack_in_place(self, i: int, array: np.ndarray, empty: Callable[[int], np.ndarray]) -> np.ndarray | None:
        """See `Kernel`: transformed weights are many times as large as weights, and written once."""
        return self._stored(array, empty).view(np.uint8) if i == 1 and not self.raw else None

    def _stored(self, array: np.ndarray, empty: Callable[[int], np.ndarray]) -> np.ndarray:
        array = array.astype(self.raw_type, copy=False)
        w, at = self._walked(array), self.transformed_elements
        out = empty(FLOAT32.itemsize * (at + self.raw_elements + 1)).view(FLOAT32)
        self._transform(w, out[:at])
        direct = self._direct(w)
        out[at:-1].reshape(direct.shape)[...] = direct
        out[-1:] = must_not_transform(array)
        return out

    def packing(self, i: int) -> Hashable:
        """See `Kernel`: channels, those of a register tile, and the edge, by which dimensions are walked."""
        return super().packing(i), self.ins[0].shape[1], self.out.shape[1], self.ob, self.edge, self.raw, self.paired

    def packed_elements(self, i: int) -> int:
        """See `Kernel`."""
        if i == 1:
            elements = self.transformed_elements + self.exponents_at
            elements += self.axes.planes * self._padded * (self.raw and self.paired)
            return elements * self.raw_type.itemsize // self.ins[1].dtype.itemsize
        return self._padded if i == 2 and self.op.bias else super().packed_elements(i)

    @property
    def raw_elements(self) -> int:
        """Elements of the weights as they are, before that number."""
        return self._padded * self.ins[0].shape[1] * self.taps

    @property
    def exponents_at(self) -> int:
        """Elements of raw weights before the exponents of what takes sums back, [n²][block][lanes], if `paired`."""
        return self.raw_elements + 1

    def _walked(self, w: np.ndarray) -> np.ndarray:
        """[M, C, k…] → [M up to whole tiles, C, swept, down, across]"""
        return walked(w, self.axes, self._padded - self.out.shape[1])

    def _direct(self, w: np.ndarray) -> np.ndarray:
        """[M, C, swept, down, across] → [tile of OB blocks, C, taps, OB*lanes]"""
        return w.reshape(-1, self.ob * self.lanes, w.shape[1], self.taps).transpose(0, 2, 3, 1)

    def _transform(self, w: np.ndarray, out: np.ndarray) -> None:
        """[M, C, swept, down, across] → [n², tile of OB blocks, swept tap, s², C, OB*lanes], and what pairs need."""
        planes, width = self.axes.planes, self.ob * self.lanes
        tiles, count = self._tiles(w), len(w) // width
        u = out[: self.returns_at].reshape(planes, count, w.shape[2], self.axes.residues, w.shape[1], width)
        if self.paired:
            back = out[self.returns_at : self.pairs_at].reshape(planes, count, width)
            pairs = out[self.pairs_at :].reshape(planes, count, -1, width)
            paired_weights(tiles, (u, back, pairs), self.triples * 3 * self.lanes, plane_sizes(self.axes))
            return
        for k, tile in enumerate(tiles):
            u[:, k] = tile

    def _tiles(self, w: np.ndarray) -> Iterator[np.ndarray]:
        """[M, C, swept, down, across] → of each OB blocks [n², swept tap, s², C, OB*lanes]"""
        _, down, across = self.axes
        return transformed_tiles(apart_by_residue(w, down, across), self.ob * self.lanes, down, across)
