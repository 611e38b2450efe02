"""The inner product that convolutions and matrix products share: a register tile swept over input channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index, register_type, vector
from brickrt.ops.cpu.emit.variables import Variable
from brickrt.ops.cpu.products.words.word_dot import WordDot

LoadWeight = Callable[[Index, int], ir.Value]  # (channel, block of the tile) → vector of output channels

LINE = 64  # bytes of a cache line
L1_BYTES = 2**15  # a stream of weights above this comes from L2 for every register tile
NEAR = 448  # multiply-adds between the weights in use and those prefetched into L1
FEWEST = 4  # multiply-adds of a step, of two pixels or more, that has loads to spare for prefetching


@dataclass(frozen=True)
class PackedStream:
    """Weights [channel, blocks*lanes] from `base` on, part of a tile's stream of `channels` (times taps) in all.

    `prefetch_more` emits prefetches of other things, in the step of a channel. With `follows`, the stream of the next
    tile lies behind this one. `ask` emits all prefetches of weights in the step of a channel (`rows/pace.py`).
    """

    f: FunctionEmitter
    base: ir.Value
    blocks: int
    channels: int
    dtype: np.dtype
    lanes: int
    prefetch_more: Callable[[Index], None] | None = None
    follows: bool = False
    ask: Callable[[Index], None] | None = None

    def __call__(self, c: Index, j: int) -> ir.Value:
        return self.f.load(self.base, self.offset(c, j), self.dtype, self.lanes)

    def offset(self, c: Index, j: int) -> Index:
        """Where block `j` of a channel lies, in elements."""
        return self.f.add(self.f.mul(c, self.blocks * self.lanes), j * self.lanes)

    @property
    def exceeds_l1(self) -> bool:
        """Whether the tile's stream is longer than L1 holds."""
        return self.channels * self.blocks * self.lanes * self.dtype.itemsize > L1_BYTES

    def prefetch(self, c: Index, blocks: int, pixels: int) -> None:
        """Prefetches weights of the first `blocks` blocks in the step of channel `c`: those a little further in this
        stream, where L1 does not hold it, and those of the same channel in the next one."""
        f = self.f
        if self.prefetch_more:
            self.prefetch_more(c)
        if self.ask:
            self.ask(c)
            return
        if self.exceeds_l1:
            self._prefetch(f.add(c, NEAR // (blocks * pixels)), blocks, near=True)
        if self.follows:
            self._prefetch(f.add(c, self.channels), blocks, near=False)

    def _prefetch(self, c: Index, blocks: int, near: bool) -> None:
        """May reach past the end, which is harmless."""
        for j in range(blocks):
            if j * self.lanes * self.dtype.itemsize % LINE == 0:
                self.f.prefetch(self.base, self.offset(c, j), self.dtype, near=near)


@dataclass(frozen=True)
class Accumulators:
    """`blocks` x `pixels` vectors, in registers. `dtype` is that of the pixels; with `dot`, pixels and weights
    are words, whose products it adds."""

    f: FunctionEmitter
    blocks: int
    pixels: int
    dtype: np.dtype
    lanes: int
    sums: tuple[tuple[Variable, ...], ...]
    dot: WordDot | None = None

    @staticmethod
    def create(
        f: FunctionEmitter,
        initial: Sequence[ir.Value],
        pixels: int,
        dtype: np.dtype,
        lanes: int,
        dot: WordDot | None = None,
    ) -> Accumulators:
        """One row of accumulators per value in `initial` (the bias of each block of channels)."""
        sums = tuple(tuple(f.variable(value) for _ in range(pixels)) for value in initial)
        return Accumulators(f, len(initial), pixels, dtype, lanes, sums, dot)

    @property
    def kind(self) -> ir.Type:
        """The vector type of a sum."""
        return vector(register_type(self.dtype), self.lanes)

    def value(self, block: int, pixel: int) -> ir.Value:
        """One sum."""
        return self.f.read(self.sums[block][pixel])

    def put(self, block: int, pixel: int, value: ir.Value) -> None:
        """Changes one sum."""
        self.f.change(self.sums[block][pixel], value)

    def multiply_add(
        self, pixels: ir.Value, offsets: Sequence[int | None], stride: Index, channels: int, weight: LoadWeight
    ) -> None:
        """acc[j][t] += pixels[offsets[t] + channel*stride] * weight(channel, j), for all channels.

        `offsets` are constants; None leaves a pixel out. A channel of a tile is work enough for one step of the loop:
        unrolled, even three of them, it spills accumulators and compiles several times as long.
        """
        f = self.f
        live = [(t, offset) for t, offset in enumerate(offsets) if offset is not None]
        spare = len(live) > 1 and self.blocks * len(live) >= FEWEST
        stream = weight if isinstance(weight, PackedStream) and spare else None
        with f.loop(0, channels) as c:
            if stream:
                stream.prefetch(c, self.blocks, len(live))
            row = f.address(pixels, f.mul(c, stride), self.dtype)
            self.add_channel(row, live, [weight(c, j) for j in range(self.blocks)])

    def add_channel(self, row: ir.Value, live: Sequence[tuple[int, int]], weights: Sequence[ir.Value]) -> None:
        """Adds the products of one channel, of the pixels at `live` offsets."""
        f, dot = self.f, self.dot
        factors = [dot.weight(w) for w in weights] if dot else []
        for t, offset in live:
            pixel = f.splat(f.load(row, offset, self.dtype), self.lanes)
            if dot:
                parts = dot.pixel(pixel)
                for j, factor in enumerate(factors):
                    self.put(j, t, dot.add(self.value(j, t), parts, factor))
            else:
                for j, w in enumerate(weights):
                    self.put(j, t, f.fma(pixel, w, self.value(j, t)))
