"""The products of a Winograd convolution whose weights stay as they are in memory, and are transformed in the worker's
scratch: those of a chunk of input channels and a tile of output channels, where all tiles of the group read them at
once; or, where they are few, all of a box, which then multiplies as if they had been stored so.

Transforming takes two multiply-adds and a store for each product with one tile; memory is read 36/9 times less often
than transformed weights would take, and weights of two bytes are widened on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import FLOAT, I64, Index, zeros
from brickrt.ops.cpu.products.register_tile import LINE
from brickrt.ops.cpu.winograd.frame import TileGroup, WinogradFrame
from brickrt.ops.cpu.winograd.input_transform import slot
from brickrt.ops.cpu.winograd.products import Products
from brickrt.ops.cpu.winograd.transforms import weight_rows


def transform(
    frame: WinogradFrame,
    which: tuple[Index, Index, Index],
    count: int,
    to: ir.Value,
    plane: Index,
    scales: ir.Value | None = None,
) -> None:
    """G w Gᵀ of the filters of `count` blocks of outputs, from a block on, for a channel of the input and a swept tap;
    `plane` is how far planes are from each other at `to`. Times a vector for each plane, where there are `scales`."""
    f, k, (_, down, across) = frame.f, frame.k, frame.k.axes
    block, channel, tap = which
    start = frame.raw_at(block, channel, f.mul(tap, down.r * across.r))
    weights = f.address(frame.raw_weights, start, k.raw_type)
    for j in range(count):
        w = [f.load(weights, (n * k.ob + j) * k.lanes, k.raw_type, k.lanes) for n in range(down.r * across.r)]
        columns = [weight_rows(f, w[x :: across.r], down) for x in range(across.r)]
        for y in range(down.n):
            for x, value in enumerate(weight_rows(f, [column[y] for column in columns], across)):
                if scales is not None:
                    value = f.b.fmul(value, f.load(scales, (y * across.n + x) * k.lanes, frame.dtype, k.lanes))
                f.store(value, to, (y * across.n + x) * plane + j * k.lanes, frame.dtype, k.lanes)


class RawProducts(Products):
    """Emits weight transforms and products of kernels without strides."""

    def __init__(self, frame: WinogradFrame) -> None:
        super().__init__(frame)
        self.chunk_weights = self.f.address(frame.v, frame.k.weights_at, frame.dtype)

    def emit(self, group: TileGroup) -> None:
        """Tile by tile of output channels of the box."""
        f, k, frame = self.f, self.k, self.frame
        all_blocks = k.out.channel_blocks
        rest = int(all_blocks % k.ob)
        with f.loop(frame.first_block, f.minimum(frame.last_block, all_blocks - rest), k.ob) as block:
            self.tile(group, block, k.ob)
        if rest:
            with f.loop(f.maximum(frame.first_block, all_blocks - rest), frame.last_block, rest) as block:
                self.tile(group, block, rest)

    def tile(self, group: TileGroup, block: Index, count: int) -> None:
        """`count` blocks of output channels: swept taps, and chunks of input channels, whole blocks of them first."""
        f, k = self.f, self.k
        whole, tail = divmod(k.steps, k.lanes)
        self.clear(group, block, count)
        with f.loop(0, k.axes.swept.r) as tap:
            with f.loop(0, whole, k.chunk_blocks) as first:
                blocks = f.minimum(k.chunk_blocks, f.sub(whole, first))
                self.chunk(group, block, count, tap, (first, blocks, k.lanes))
            if tail:
                self.chunk(group, block, count, tap, (whole, 1, tail))

    def clear(self, group: TileGroup, block: Index, count: int) -> None:
        """Sets the sums of all planes to zero."""
        f, k, frame = self.f, self.k, self.frame
        zero = zeros(frame.kind)
        with self.sums_of(group) as (plane, at, g), f.loop(0, count * k.t) as n:
            start = f.add(self.place(group, plane, at, g, block), f.mul(n, k.lanes))
            f.store(zero, frame.m, start, frame.dtype, k.lanes)

    @contextmanager
    def sums_of(self, group: TileGroup) -> Iterator[tuple[Index, Index, Index]]:
        """Transformed plane, output plane and register tile of each tile of sums of a group."""
        f = self.f
        with f.loop(0, self.k.axes.planes) as plane, f.loop(group.lo, group.hi) as at, f.loop(0, group.blocks) as g:
            yield plane, at, g

    def place(self, group: TileGroup, plane: Index, at: Index, g: Index, block: Index) -> Index:
        """Where a tile of sums lies in M."""
        f, k, frame = self.f, self.k, self.frame
        row = f.add(f.mul(f.sub(at, group.lo), group.blocks), g)
        number = f.add(f.mul(row, frame.own), f.sub(block, frame.first_block))
        return f.add(f.mul(plane, k.plane_out), f.mul(number, k.t * k.lanes))

    def chunk(self, group: TileGroup, block: Index, count: int, tap: Index, part: tuple[Index, Index, int]) -> None:
        """A chunk of input channels: `part` is its first block, how many it has, and the channels of each."""
        f, k = self.f, self.k
        first, blocks, channels = part
        with f.loop(0, f.mul(blocks, channels)) as c:
            self.transform(block, count, tap, f.add(f.mul(first, k.lanes), c), c)
        following = self.frame.raw_at(block, f.mul(f.add(first, k.chunk_blocks), k.lanes), 0)
        with f.loop(0, k.axes.planes) as plane:
            self.prefetch(following, plane)
            live = self.frame.register_tiles_of(group, plane)
            for t in self.register_tiles():
                with f.loop(group.lo, group.hi) as at, self.if_live(at, tap) as z, f.loop(*live) as g:
                    start = self.place(group, plane, at, g, block)
                    vector = f.mul(f.add(f.mul(slot(self.frame, z), self.frame.plane_tiles), g), k.depth_in)
                    self.add(start, (count, t), plane, f.add(vector, part[0]), part)

    @contextmanager
    def if_live(self, at: Index, tap: Index) -> Iterator[Index]:
        """The input plane that output plane `at` reads at a swept tap, where it is on the tensor."""
        f, axis = self.f, self.k.axes.swept
        if axis.dim is None:
            yield 0
            return
        z = f.add(f.sub(f.mul(at, axis.stride), axis.pad), f.mul(tap, axis.dilation))
        with f.when(f.b.icmp_unsigned("<", f.value(z), f.value(axis.extent))):
            yield z

    def transform(self, block: Index, count: int, tap: Index, channel: Index, c: Index) -> None:
        """Transforms the filters of one channel of the input, the `c`-th of its chunk."""
        f, k = self.f, self.k
        made = f.address(self.chunk_weights, f.mul(c, k.ob * k.lanes), self.frame.dtype)
        transform(self.frame, (block, channel, tap), count, made, k.chunk_plane)

    def prefetch(self, following: Index, plane: Index) -> None:
        """Prefetches a plane's share of the weights that are transformed next; past the end it is harmless."""
        f, k = self.f, self.k
        line = LINE // k.raw_type.itemsize
        lines = -(-k.chunk_blocks * k.lanes * k.step_channels * k.taps * k.ob * k.lanes // line)
        share = -(-lines // (k.axes.planes * k.axes.swept.r))
        with f.loop(0, share) as n:
            at = f.add(following, f.mul(f.add(f.mul(plane, share), n), line))
            f.prefetch(self.frame.raw_weights, at, k.raw_type, near=False)

    def add(
        self, start: Index, shape: tuple[int, int], plane: Index, vector: Index, part: tuple[Index, Index, int]
    ) -> None:
        """Adds a chunk to the tile of sums at `start`, which has a `shape` of blocks and tiles; `vector` is its first
        one in V."""
        f, k, frame, (_, blocks, channels) = self.f, self.k, self.frame, part
        sums = f.address(frame.m, start, frame.dtype)
        acc = self.accumulators(*shape)
        places = [(j, t, (j * shape[1] + t) * k.lanes) for j in range(shape[0]) for t in range(shape[1])]
        for j, t, at in places:
            acc.put(j, t, f.load(sums, at, frame.dtype, k.lanes))
        pixels = f.address(frame.v, f.add(f.mul(plane, k.plane_in), f.mul(vector, shape[1] * k.lanes)), frame.dtype)
        weights = f.address(self.chunk_weights, f.mul(plane, k.chunk_plane), frame.dtype)
        with f.loop(0, blocks) as c:
            self.channels(acc, pixels, weights, c, channels)
        for j, t, at in places:
            f.store(acc.value(j, t), sums, at, frame.dtype, k.lanes)


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
        f, k, frame = self.f, self.k, self.frame
        rest = int(k.out.channel_blocks % k.ob)
        whole = k.out.channel_blocks - rest
        with f.loop(frame.first_block, f.minimum(frame.last_block, whole), k.ob) as block:
            self.tile(block, k.ob)
        if rest:
            with f.loop(f.maximum(frame.first_block, whole), frame.last_block, rest) as block:
                self.tile(block, rest)

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
