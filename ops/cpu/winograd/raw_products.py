"""The products of a Winograd convolution whose weights stay as they are in memory, and are transformed in the worker's
scratch: those of a row of the n×n planes and a tile of output channels, which all tiles of the group then read; or,
where they are few or held, all of a box, which then multiplies as if they had been stored so.

Transforming takes about three multiply-adds and a store for each product with one tile; memory is read 36/9 times less
often than transformed weights would take, and weights of two bytes are widened on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import FLOAT, I64, Index, zeros
from brickrt.ops.cpu.winograd.frame import TileGroup, WinogradFrame
from brickrt.ops.cpu.winograd.input_transform import NextInputs
from brickrt.ops.cpu.winograd.products import Products, WeightsRead
from brickrt.ops.cpu.winograd.transforms import weight_rows


def transform(
    frame: WinogradFrame,
    which: tuple[Index, Index, Index],
    count: int,
    to: ir.Value,
    plane: Index,
    scales: ir.Value | None = None,
    rows: Sequence[int] | None = None,
) -> None:
    """G w Gᵀ of the filters of `count` blocks of outputs, from a block on, for a channel of the input and a swept tap;
    `plane` is how far planes are from each other at `to`. Times a vector for each plane, where there are `scales`; only
    some `rows` of planes, where these are given."""
    f, k, (_, down, across) = frame.f, frame.k, frame.k.axes
    block, channel, tap = which
    start = frame.raw_at(block, channel, f.mul(tap, down.r * across.r))
    weights = f.address(frame.raw_weights, start, k.raw_type)
    for j in range(count):
        w = [f.load(weights, (n * k.ob + j) * k.lanes, k.raw_type, k.lanes) for n in range(down.r * across.r)]
        columns = [weight_rows(f, w[x :: across.r], down) for x in range(across.r)]
        for n, y in enumerate(range(down.n) if rows is None else rows):
            for x, value in enumerate(weight_rows(f, [column[y] for column in columns], across)):
                if scales is not None:
                    value = f.b.fmul(value, f.load(scales, (y * across.n + x) * k.lanes, frame.dtype, k.lanes))
                f.store(value, to, (n * across.n + x) * plane + j * k.lanes, frame.dtype, k.lanes)


class RowProducts(Products):
    """Emits weight transforms and products of kernels without strides, row by row of the n×n planes: what a row of
    planes needs of the weights of a tile of blocks stays in L2 until all tiles of the group are multiplied with it."""

    def __init__(self, frame: WinogradFrame) -> None:
        super().__init__(frame)
        self.weights = self.f.address(frame.v, frame.k.weights_at, frame.dtype)

    def emit(self, group: TileGroup) -> None:
        """Row by row of planes, tile by tile of output channels of the box, plane by plane."""
        f, frame, (_, down, across) = self.f, self.frame, self.k.axes
        next_inputs = NextInputs(frame)
        later = next_inputs.find(group)
        with f.loop(0, down.n) as row:
            for block, count in self.tiles_of_blocks():
                self.make(row, block, count)
                with f.loop(0, across.n) as column:
                    plane = f.add(f.mul(row, across.n), column)
                    with f.when(self.is_last(block)):
                        next_inputs.ask(group, later, plane)
                    self.blocks(group, frame.register_tiles_of(group, plane), plane, block, count)

    def make(self, row: Index, block: Index, count: int) -> None:
        """Transforms the weights of `count` blocks of outputs for a row of planes: all swept taps and channels."""
        f, k = self.f, self.k
        for number in f.cases(row, k.axes.down.n):
            with f.loop(0, k.axes.swept.r) as tap, f.loop(0, k.steps) as channel:
                at = f.mul(f.add(f.mul(tap, k.steps), channel), k.ob * k.lanes)
                self.transform(number, (block, channel, tap), count, f.address(self.weights, at, self.frame.dtype))

    def transform(self, row: int, which: tuple[Index, Index, Index], count: int, to: ir.Value) -> None:
        """G w Gᵀ in a row of planes, of the filters of `count` blocks of outputs: `which` are the first of these, a
        channel of the input and a swept tap."""
        transform(self.frame, which, count, to, self.k.row_plane, rows=(row,))

    def stored_at(self, plane: Index, tile: Index, tap: Index, residue: Index) -> Index:
        """See `Products`: of the tile of blocks at hand."""
        f, k = self.f, self.k
        column = f.rem(plane, k.axes.across.n)
        return f.add(f.mul(column, k.row_plane), f.mul(tap, k.steps * k.ob * k.lanes))

    def asker(
        self, group: TileGroup, live: tuple[Index, Index], place: tuple[Index, Index], read: WeightsRead
    ) -> Callable[[Index, int], None]:
        """See `Products`: for its share of the weights that are transformed next."""
        f, k, frame = self.f, self.k, self.frame
        column = f.rem(read.plane, k.axes.across.n)
        number, count = self.place_among(group, live, place)
        which = f.add(f.mul(column, count), number), f.mul(count, k.axes.across.n)
        following = frame.choose(self.is_last(read.block), frame.first_block, f.add(read.block, k.ob))
        each = k.step_channels * k.taps // k.axes.swept.r * k.ob * k.lanes
        start = f.add(frame.raw_at(following, 0, 0), f.mul(read.tap, k.steps * each))
        return self.shares(f.address(frame.raw_weights, start, k.raw_type), k.raw_type, each, which)


class WholeProducts(Products):
    """Emits weight transforms, before all tiles, and products of kernels without strides."""

    def __init__(self, frame: WinogradFrame) -> None:
        super().__init__(frame)
        f, k = self.f, self.k
        self.weights = f.address(frame.v, k.made_at, frame.dtype)
        self.flags = f.address(frame.v, k.weights_at, frame.dtype)  # of tiles of blocks that are transformed
        if k.keeps_workspace:
            self.take_over()
        self.transform()

    def take_over(self) -> None:
        """Clears the flags where another kernel, or this one with other weights, ran before: the word of the worker
        then does not have the address of these."""
        f, k = self.f, self.k
        owner = f.pointer(2 + len(k.ins))
        mine = f.b.ptrtoint(self.frame.raw_weights, I64)
        with f.when(f.b.icmp_signed("!=", f.b.load(owner, typ=I64), mine)):
            with f.loop(0, k.made_at - k.weights_at, k.lanes) as n:
                f.store(zeros(self.frame.kind), self.flags, n, self.frame.dtype, k.lanes)
            f.b.store(mine, owner)

    def transform(self) -> None:
        """Transforms the weights of the box's blocks of outputs, tile by tile."""
        for block, count in self.tiles_of_blocks():
            self.tile(block, count)

    def tile(self, block: Index, count: int) -> None:
        """`count` blocks of outputs, where they are not there yet."""
        f, k, dtype = self.f, self.k, self.frame.dtype
        if not k.keeps_workspace:
            self.make(block, count)
            return
        number, there = f.div(block, k.ob), ir.Constant(FLOAT, 1.0)
        with f.when(f.b.fcmp_unordered("!=", f.load(self.flags, number, dtype), there)):
            self.make(block, count)
            f.store(there, self.flags, number, dtype)

    def make(self, block: Index, count: int) -> None:
        """`count` blocks of outputs, for all swept taps and channels of the input."""
        f, k = self.f, self.k
        with f.loop(0, k.axes.swept.r) as tap, f.loop(0, k.ins[0].shape[1]) as channel:
            start = f.add(self.start(f.div(block, k.ob), tap), f.mul(channel, k.ob * k.lanes))
            made = f.address(self.weights, start, self.frame.dtype)
            transform(self.frame, (block, channel, tap), count, made, k.whole_plane)

    def start(self, tile: Index, tap: Index) -> Index:
        """Elements of a plane before the weights of a tile of blocks at a swept tap."""
        f, k = self.f, self.k
        return f.mul(f.add(f.mul(tile, k.axes.swept.r), tap), k.ins[0].shape[1] * k.ob * k.lanes)

    def stored_at(self, plane: Index, tile: Index, tap: Index, residue: Index) -> Index:
        """See `Products`."""
        return self.f.add(self.f.mul(plane, self.k.whole_plane), self.start(tile, tap))
