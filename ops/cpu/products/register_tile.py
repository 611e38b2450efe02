"""The inner product that convolutions and matrix products share: a register tile swept over input channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index, register_type, vector
from brickrt.ops.cpu.emit.variables import Variable
from brickrt.ops.cpu.isa import AVX2_LANES
from brickrt.ops.cpu.products.words.word_dot import WordDot

LoadWeight = Callable[[Index, int], ir.Value]  # (channel, block of the tile) → vector of output channels

LINE = 64  # bytes of a cache line
L1_BYTES = 2**15  # a stream of weights above this comes from L2 for every register tile
MULTIPLY_ADDS_AHEAD = 448  # between the weights in use and those prefetched into L1
STEPS = 8  # channels in a step of the loop, where vectors have eight lanes: few registers leave room for nothing else
WIDE_STEPS = 4  # the same where vectors have 16 lanes, and each tile asks for its share of weights
FEWEST_MULTIPLY_ADDS = 4  # of a step, of two pixels or more, that has loads to spare for prefetching


@dataclass(frozen=True)
class PackedStream:
    """Weights [channel, blocks*lanes] from `base` on, part of a tile's stream of `channels` (times taps) in all.

    `prefetch_more` emits prefetches of other things, in the step of a channel. With `follows`, the stream of the next
    tile lies behind this one. `ask` emits all prefetches of weights of so many steps from that of a channel on
    (`rows/pace.py`).
    """

    f: FunctionEmitter
    base: ir.Value
    blocks: int
    channels: int
    dtype: np.dtype
    lanes: int
    prefetch_more: Callable[[Index], None] | None = None
    follows: bool = False
    ask: Callable[[Index, int], None] | None = None

    def __call__(self, c: Index, j: int) -> ir.Value:
        return self.f.load(self.base, self.offset(c, j), self.dtype, self.lanes)

    def offset(self, c: Index, j: int) -> Index:
        """Where block `j` of a channel lies, in elements."""
        return self.f.add(self.f.mul(c, self.blocks * self.lanes), j * self.lanes)

    @property
    def exceeds_l1(self) -> bool:
        """Whether the tile's stream is longer than L1 holds."""
        return self.channels * self.blocks * self.lanes * self.dtype.itemsize > L1_BYTES

    def prefetch(self, first: Index, blocks: int, pixels: int, steps: int = 1) -> None:
        """Prefetches weights of the first `blocks` blocks in `steps` steps from that of channel `first` on: those a
        little further in this stream, where L1 does not hold it, and those of the same channels in the next one."""
        f = self.f
        if self.prefetch_more:
            for n in range(steps):
                self.prefetch_more(f.add(first, n))
        if self.ask:
            self.ask(first, steps)
            return
        if self.exceeds_l1:
            self._prefetch(self.base, f.add(first, MULTIPLY_ADDS_AHEAD // (blocks * pixels)), blocks, steps, near=True)
        if self.follows:
            behind = f.address(self.base, f.mul(self.channels, self.blocks * self.lanes), self.dtype)
            self._prefetch(behind, first, blocks, steps, near=False)

    def _prefetch(self, base: ir.Value, first: Index, blocks: int, steps: int, near: bool) -> None:
        """May reach past the end, which is harmless."""
        nbytes = self.lanes * self.dtype.itemsize
        for n in range(steps):
            for j in range(blocks):
                if (n * self.blocks + j) * nbytes % LINE == 0:
                    self.f.prefetch(base, self.offset(self.f.add(first, n), j), self.dtype, near=near)


def whole_steps(f: FunctionEmitter, channels: Index, lanes: int, asks: bool) -> list[tuple[Index, Index, int]]:
    """Loops over so many channels: from where, to where, and how many are one step. Twelve multiply-adds of eight lanes
    take six cycles, in which counting and prefetching would be a fifth of the instructions: as many as a core that
    does another one's work beside them has no room for. By vectors of 16 lanes one channel is a step, but for tiles
    that ask for weights."""
    together = STEPS if lanes == AVX2_LANES else WIDE_STEPS if asks else 1
    if together == 1:
        return [(0, channels, 1)]
    whole = f.mul(f.div(channels, together), together)
    loops: list[tuple[Index, Index, int]] = [(0, whole, together), (whole, channels, 1)]
    return [(start, end, step) for start, end, step in loops if not (isinstance(end, int) and start == end)]


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

    def change(self, how: Callable[[ir.Value, int], ir.Value]) -> None:
        """Changes all sums, each by its value and the number of its pixel."""
        for block in range(self.blocks):
            for pixel in range(self.pixels):
                self.put(block, pixel, how(self.value(block, pixel), pixel))

    def multiply_add(
        self, pixels: ir.Value, offsets: Sequence[int | None], stride: Index, channels: int, weight: LoadWeight
    ) -> None:
        """acc[j][t] += pixels[offsets[t] + channel*stride] * weight(channel, j), for all channels.

        `offsets` are constants; None leaves a pixel out. Several channels may be a step of the loop (`whole_steps`),
        but for words: LLVM would first multiply all of several steps and add the products later, for which there are no
        registers.
        """
        f = self.f
        live = [(t, offset) for t, offset in enumerate(offsets) if offset is not None]
        spare = len(live) > 1 and self.blocks * len(live) >= FEWEST_MULTIPLY_ADDS
        stream = weight if isinstance(weight, PackedStream) and spare else None
        asks = stream is not None and stream.ask is not None
        loops = whole_steps(f, channels, self.lanes, asks) if self.dot is None else [(0, channels, 1)]
        for start, end, together in loops:
            with f.loop(start, end, together) as first:
                if stream:
                    stream.prefetch(first, self.blocks, len(live), together)
                for n in range(together):
                    c = f.add(first, n)
                    if together > 1:
                        f.keep_order()
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
