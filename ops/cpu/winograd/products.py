"""The products of a Winograd convolution: for each of the n² planes, V times the transformed weights.

How many tiles a register tile has is a size: broad code has products for each number that it may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import I64, Index, zeros
from brickrt.ops.cpu.emit.sizes import Size, alternative, is_equal
from brickrt.ops.cpu.products.register_tile import Accumulators, PackedStream
from brickrt.ops.cpu.products.rows.pace import share_asker
from brickrt.ops.cpu.products.words.word_dot import WordDot
from brickrt.ops.cpu.winograd.axes import Axis
from brickrt.ops.cpu.winograd.frame import TileGroup, WinogradFrame
from brickrt.ops.cpu.winograd.input_transform import NextInputs, slot


@dataclass(frozen=True)
class WeightsRead:
    """Which transformed weights a register tile reads: those of a plane, of the blocks of outputs from one on, of a
    swept tap and a residue."""

    plane: Index
    block: Index
    tap: Index
    residue: Index


class Products:
    """Emits the products."""

    def __init__(self, frame: WinogradFrame) -> None:
        self.frame, self.k, self.f = frame, frame.k, frame.f
        self.dot: WordDot | None = None  # of products of words
        self.weights = frame.w  # transformed

    def accumulators(self, count: int, t: int) -> Accumulators:
        """The sums of a register tile of `count` blocks of output channels and `t` tiles, zero."""
        start = [zeros(self.frame.kind)] * count
        return Accumulators.create(self.f, start, t, self.frame.dtype, self.k.lanes, self.dot)

    def emit(self, group: TileGroup) -> None:
        """Plane by plane, for all blocks of output channels of the box."""
        f, frame = self.f, self.frame
        next_inputs = NextInputs(frame)
        later = next_inputs.find(group)
        with f.loop(0, self.k.axes.planes) as plane:
            next_inputs.ask(group, later, plane)
            live = frame.register_tiles_of(group, plane)
            for block, count in self.tiles_of_blocks():
                self.blocks(group, live, plane, block, count)

    def tiles_of_blocks(self) -> Iterator[tuple[Index, int]]:
        """for block, count in ...: what is emitted in the meantime runs for all register tiles along the box's output
        channels, of which each has `count` blocks from `block` on."""
        f, frame, ob, blocks = self.f, self.frame, self.k.ob, self.k.out.channel_blocks
        rest = int(blocks % ob)
        with f.loop(frame.first_block, f.minimum(frame.last_block, blocks - rest), ob) as block:
            yield block, ob
        if rest:
            with f.loop(f.maximum(frame.first_block, blocks - rest), frame.last_block, rest) as block:
                yield block, rest

    def blocks(self, group: TileGroup, live: tuple[Index, Index], plane: Index, block: Index, count: int) -> None:
        """`count` blocks of output channels, for the register tiles of the group that are `live`."""
        f, k, frame = self.f, self.k, self.frame
        tile = f.div(block, k.ob)
        for t in self.register_tiles():
            with f.loop(group.lo, group.hi) as at, f.loop(*live) as g:
                acc = self.accumulators(count, t)
                with self.live_taps(at) as (tap, z), self.live_residues(plane) as residue:
                    weights = self.panel(plane, tile, tap, residue)
                    ask = self.asker(group, live, (at, g), WeightsRead(plane, block, tap, residue))
                    place = f.add(f.mul(slot(frame, z), self.frame.plane_tiles), g)
                    self.sweep(acc, weights, residue, plane, place, ask)
                row = f.add(f.mul(f.sub(at, group.lo), group.blocks), g)
                self.store(acc, plane, row, f.sub(block, frame.first_block))

    def following(self, read: WeightsRead) -> Index:
        """Elements before the weights that the box reads after some: those of the next tile of blocks, or of the first
        in the next plane. May lie past the end."""
        f, frame, ob = self.f, self.frame, self.k.ob
        last = self.is_last(read.block)
        tile = frame.choose(last, f.div(frame.first_block, ob), f.add(f.div(read.block, ob), 1))
        return self.stored_at(f.add(read.plane, frame.choose(last, 1, 0)), tile, read.tap, read.residue)

    def is_last(self, block: Index) -> ir.Value:
        """Whether no blocks of the box follow those of the register tile whose first one is `block`."""
        f = self.f
        return f.b.icmp_signed(">=", f.value(f.add(block, self.k.ob)), f.value(self.frame.last_block))

    def asker(
        self, group: TileGroup, live: tuple[Index, Index], place: tuple[Index, Index], read: WeightsRead
    ) -> Callable[[Index, int], None] | None:
        """What asks in each step of a register tile at `place` for its share of the weights that follow those that are
        `read`, which all tiles of a group bring to L2 at an even pace; None where the processor does that best by
        itself."""
        f, k, dtype = self.f, self.k, self.frame.dtype
        if not k.isa.shares_chunks:
            return None
        start = f.address(self.weights, self.following(read), dtype)
        return self.shares(start, dtype, k.ob * k.lanes, self.place_among(group, live, place))

    def place_among(
        self, group: TileGroup, live: tuple[Index, Index], place: tuple[Index, Index]
    ) -> tuple[Index, Index]:
        """Which of the register tiles of a group that read the same weights the one at `place` is, and how many these
        are."""
        f, (at, g) = self.f, place
        in_row = f.sub(live[1], live[0])
        return f.add(f.mul(f.sub(at, group.lo), in_row), f.sub(g, live[0])), f.mul(f.sub(group.hi, group.lo), in_row)

    def shares(
        self, start: ir.Value, dtype: np.dtype, width: int, which: tuple[Index, Index]
    ) -> Callable[[Index, int], None]:
        """What asks for one of several equal shares of what lies at `start`, `width` elements for each step: `which`
        one, and how many there are."""
        f, (number, count) = self.f, which
        each = f.b.udiv(f.value(f.add(count, width - 1)), f.value(count))
        first = f.address(start, f.mul(f.mul(number, self.channels_of_tap), each), dtype)
        return share_asker(f, first, each, dtype)

    @property
    def channels_of_tap(self) -> int:
        """Steps of a sweep over the input channels of a tap and a residue."""
        return self.k.steps * (self.k.axes.residues if self.k.gathers else 1)

    def register_tiles(self) -> Iterator[int]:
        """for t in k.counts: what is emitted in the meantime runs where register tiles have t tiles."""
        for t in self.k.counts:
            runs = alternative(is_equal(self.k.t, t))
            if isinstance(runs, Size):
                with self.f.when(self.f.b.icmp_signed("!=", self.f.value(runs), I64(0))):
                    yield t
            elif runs:
                yield t

    @contextmanager
    def live_taps(self, at: Index) -> Iterator[tuple[Index, Index]]:
        """The taps of the swept axis that fall on the tensor, and the input plane each reads, for output plane `at`."""
        f, axis = self.f, self.k.axes.swept
        if axis.dim is None:
            yield 0, 0
            return
        start, d = f.sub(f.mul(at, axis.stride), axis.pad), axis.dilation
        lo = f.maximum(0, f.div(f.sub(d - 1, start), d))
        hi = f.minimum(axis.r, f.add(f.div(f.sub(axis.extent - 1, start), d), 1))
        with f.loop(lo, hi) as tap:
            yield tap, f.add(start, f.mul(tap, d))

    @contextmanager
    def live_residues(self, plane: Index) -> Iterator[Index]:
        """The residues of the strides whose filters are not zero at the points of `plane`."""
        f, (_, down, across) = self.f, self.k.axes
        if self.k.axes.residues == 1 or self.k.gathers:
            yield 0
            return
        row, column = f.div(plane, across.n), f.rem(plane, across.n)
        with f.loop(0, self.live(row, down)) as y, f.loop(0, self.live(column, across)) as x:
            yield self.frame.residue((y, x))

    def live(self, point: Index, axis: Axis) -> Index:
        """The first residues have a last tap, and so a value at ∞."""
        f = self.f
        last = f.b.icmp_signed("==", f.value(point), f.value(axis.n - 1))
        return f.b.select(last, f.value(axis.whole), f.value(axis.residues))

    def panel(self, plane: Index, tile: Index, tap: Index, residue: Index) -> ir.Value:
        """Address of the weights of a plane for a tile of blocks, at a swept tap and a residue."""
        return self.f.address(self.weights, self.stored_at(plane, tile, tap, residue), self.frame.dtype)

    def stored_at(self, plane: Index, tile: Index, tap: Index, residue: Index) -> Index:
        """Elements before those weights."""
        f, k = self.f, self.k
        number = f.add(f.mul(plane, -(-k.out.channel_blocks // k.ob)), tile)
        first = f.add(f.mul(f.add(f.mul(number, k.axes.swept.r), tap), k.axes.residues), residue)
        return f.mul(first, k.ins[0].shape[1] * k.ob * k.lanes)

    def sweep(
        self,
        acc: Accumulators,
        weights: ir.Value,
        residue: Index,
        plane: Index,
        block: Index,
        ask: Callable[[Index, int], None] | None = None,
    ) -> None:
        """Adds all input channels of a residue at one swept tap; `block` is the register tile in V, and `ask` emits
        prefetches in the step of a channel."""
        f, k, frame, channels = self.f, self.k, self.frame, self.channels_of_tap
        vector = f.add(f.mul(block, k.depth_in), f.mul(residue, k.blocks_in))
        at = f.add(f.mul(plane, k.plane_in), f.mul(vector, acc.pixels * k.lanes))
        pixels = f.address(frame.v, at, frame.dtype)
        whole, tail = divmod(channels, k.lanes)
        with f.loop(0, whole) as c:
            self.channels(acc, pixels, weights, c, k.lanes, ask)
        if tail:
            self.channels(acc, pixels, weights, whole, tail, ask)

    def channels(
        self,
        acc: Accumulators,
        pixels: ir.Value,
        weights: ir.Value,
        c: Index,
        channels: int,
        ask: Callable[[Index, int], None] | None = None,
    ) -> None:
        """The `channels` channels of block `c`."""
        f, k, dtype = self.f, self.k, self.frame.dtype
        width = k.ob * k.lanes
        rows = f.address(weights, f.mul(c, k.lanes * width), dtype)

        def weight(lane: Index, j: int) -> ir.Value:
            return f.load(rows, f.add(f.mul(lane, width), j * k.lanes), dtype, k.lanes)

        def share(lane: Index, steps: int) -> None:
            if ask:
                ask(f.add(f.mul(c, k.lanes), lane), steps)

        stream = PackedStream(f, rows, k.ob, channels, dtype, k.lanes, ask=share)
        start = f.address(pixels, f.mul(c, acc.pixels * k.lanes), dtype)
        offsets = [t * k.lanes for t in range(acc.pixels)]
        acc.multiply_add(start, offsets, 1, channels, stream if ask else weight)

    def store(self, acc: Accumulators, plane: Index, row: Index, block: Index) -> None:
        """Writes a register tile to M."""
        f, k, frame = self.f, self.k, self.frame
        at = f.add(f.mul(plane, k.plane_out), f.mul(f.add(f.mul(row, frame.own), block), acc.pixels * k.lanes))
        start = f.address(frame.m, at, frame.dtype)
        for j in range(acc.blocks):
            for t in range(acc.pixels):
                f.store(acc.value(j, t), start, (j * acc.pixels + t) * k.lanes, frame.dtype, k.lanes)
