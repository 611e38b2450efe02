"""The code of a direct convolution: loops over images, groups, tiles of channels, rows, tiles of pixels; the sweep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.epilogue import offset_of
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I32, PTR, Index, register_type, vector, zeros
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.products.register_tile import Accumulators, PackedStream
from brickrt.ops.cpu.products.row_tiles import PixelTile, RowWindow, tile_runs

BYTE = np.dtype(np.int8)

if TYPE_CHECKING:
    from brickrt.ops.cpu.products.conv import ConvKernel


@dataclass(frozen=True)
class TilePosition:
    """Where the emitter is: image, group, first block of channels of the tile and how many, outer spatial indices."""

    n: Index
    group: Index
    block: Index
    count: int
    at: list[Index]


def first_input(f: FunctionEmitter, window: RowWindow, x: Index) -> Index:
    """Input index that relative index 0 of a row of tiles stands for (`RowWindow.base` at run time)."""
    if window.transposed:
        return f.div(f.add(x, window.pad), window.stride)
    return f.sub(f.mul(x, window.stride), window.pad)


def collect(f: FunctionEmitter, base: ir.Value, offsets: Sequence[Index], dtype: np.dtype) -> ir.Value:
    """A vector of elements that lie anywhere."""
    acc = zeros(vector(register_type(dtype), len(offsets)))
    for lane, offset in enumerate(offsets):
        acc = f.b.insert_element(acc, f.load(base, offset, dtype), I32(lane))
    return acc


@contextmanager
def live_taps(f: FunctionEmitter, window: RowWindow, extent_out: int, y: Index) -> Iterator[tuple[Index, Index]]:
    """Loop over the taps of an outer dimension that fall on the tensor: yields (tap, input index)."""
    k, s, d, pad = window.kernel, window.stride, window.dilation, window.pad
    if window.transposed:
        with f.loop(0, k) as tap:
            spread = f.sub(f.add(y, pad), f.mul(tap, d))
            index = f.div(spread, s)
            with f.when(inside(f, index, window.extent, f.rem(spread, s))):
                yield tap, index
        return
    start = f.sub(f.mul(y, s), pad)
    if pad == 0 and (extent_out - 1) * s + (k - 1) * d < window.extent:
        lo, hi = 0, k
    else:
        lo = f.maximum(0, f.div(f.sub(d - 1, start), d))
        hi = f.minimum(k, f.add(f.div(f.sub(window.extent - 1, start), d), 1))
    with f.loop(lo, hi) as tap:
        yield tap, f.add(start, f.mul(tap, d))


def inside(f: FunctionEmitter, index: Index, extent: int, rest: Index) -> ir.Value:
    """0 ≤ index < extent and rest == 0."""
    ok = f.b.icmp_unsigned("<", f.value(index), ir.IntType(64)(extent))
    return f.b.and_(ok, f.b.icmp_signed("==", f.value(rest), ir.IntType(64)(0)))


class ConvBody:
    def __init__(self, kernel: ConvKernel, f: FunctionEmitter, folded: ConvBody | None = None) -> None:
        """`folded` emits the last block of output channels where the kernel folds it."""
        self.k, self.f, self.folded = kernel, f, folded
        self.out, self.x, self.w = (f.pointer(i) for i in range(3))
        self.bias = f.pointer(3) if kernel.op.bias else None
        self.ahead = [f.pointer(1 + len(kernel.ins) + k) for k in range(len(kernel.ahead))]
        self.factors = f.pointer(kernel.op.main) if kernel.op.scaled else None
        self.later = f.local(PTR, f.pointer(len(kernel.ins) + kernel.further)) if kernel.asks else None
        self.own = f.pointer(1 + len(kernel.ins) + kernel.further) if kernel.workspace else None
        self.dtype = kernel.out.dtype
        self.epilogue = kernel.epilogue.bind(f)
        self.boxes = [f.box(d) for d in range(2, kernel.out.type.rank)]
        self.windows = windows_of(kernel)

    @property
    def most(self) -> int:
        """Most pixels of a tile."""
        return self.k.tile[1]

    def emit(self) -> None:
        """All images and groups of the box; `group` is called for the blocks that it has of each."""
        f, k = self.f, self.k
        lo, hi = f.box(1)
        first, last = (f.mul(f.div(end, k.lanes), k.op.parts) for end in (lo, f.add(hi, k.lanes - 1)))
        gb, grouped = k.group_blocks, k.op.groups > 1
        groups = (f.div(first, gb), f.div(f.add(last, gb - 1), gb)) if grouped else (0, 1)
        with f.loop(*f.box(0)) as n, f.loop(*groups) as g:
            start = f.mul(g, gb)
            bounds = (f.maximum(first, start), f.minimum(last, f.add(start, gb))) if grouped else (first, last)
            self.group(n, g, *bounds)

    def group(self, n: Index, g: Index, first: Index, last: Index) -> None:
        """All blocks [first, last) of output channels, which belong to group `g`."""
        f, k, (ob, _) = self.f, self.k, self.k.tile
        start, rest = f.mul(g, k.group_blocks), k.whole_blocks % ob
        end = f.add(start, k.whole_blocks)
        if k.whole_blocks >= ob:
            with f.loop(first, f.minimum(last, f.sub(end, rest)), ob) as block:
                self.blocks(n, g, block, ob)
        if rest:
            with f.loop(f.maximum(first, f.sub(end, rest)), f.minimum(last, end), rest) as block:
                self.blocks(n, g, block, rest)
        if self.folded:
            with f.loop(f.maximum(first, end), last) as block:
                self.folded.blocks(n, g, block, 1)

    def blocks(self, n: Index, g: Index, block: Index, count: int) -> None:
        """`count` blocks of channels from `block` on, for all pixels of the box."""
        f, k = self.f, self.k
        if self.own is not None:
            self.scale_weights(TilePosition(n, g, block, count, []))
        if k.flat:
            *at, x = [lo for lo, _ in self.boxes]
            self.row(TilePosition(n, g, block, count, at), x)
            return
        with f.loops(self.boxes[:-1]) as at:
            self.row(TilePosition(n, g, block, count, at), self.boxes[-1][0])

    def row(self, place: TilePosition, x: Index) -> None:
        """One row of output pixels, from `x` on: runs of tiles."""
        f, k = self.f, self.k
        first = first_input(f, k.row_window, x)
        for run in tile_runs(k.row_window, k.row_class, self.most):
            with f.loop(0, run.repeat) as r:
                self.tile(place, f.add(x, f.mul(r, run.out_step)), f.add(first, f.mul(r, run.in_step)), run.tile)

    def tile(self, place: TilePosition, out_x: Index, in_x: Index, tile: PixelTile) -> None:
        acc = self.accumulators(place, tile.count)
        for _, _, index in self.places(place, out_x, tile):
            self.epilogue.prefetch(self.out, index)
        self.fetch_ahead(place, out_x, tile)
        self.sweep(acc, place, in_x, tile)
        self.finish(acc, place, out_x, tile)

    def fetch_ahead(self, place: TilePosition, out_x: Index, tile: PixelTile) -> None:
        """Asks for what comes later at a tile's pixels; tiles of channels share the blocks of channels there."""
        f, (ob, _) = self.f, self.k.tile
        for pointer, ahead in zip(self.ahead, self.k.ahead, strict=True):
            operand, blocks = ahead.operand, ahead.operand.channel_blocks
            each = -(-blocks // -(-self.k.group_blocks // ob))
            for j in range(each):
                block = f.minimum(f.add(f.mul(f.div(place.block, ob), each), j), blocks - 1)
                for t in range(tile.count):
                    x = f.add(out_x, tile.start + t * tile.step)
                    index = [place.n, f.mul(block, operand.block), *place.at, x]
                    f.prefetch(pointer, offset_of(f, operand, index), operand.dtype, ahead.write, near=False)

    def accumulators(self, place: TilePosition, count: int) -> Accumulators:
        """The sums of `count` pixels, begun with the bias."""
        return Accumulators.create(self.f, self.initial(place), count, self.dtype, self.k.lanes)

    def places(self, place: TilePosition, out_x: Index, tile: PixelTile) -> list[tuple[int, int, list[Index]]]:
        """Per block and pixel that a tile gives their numbers, and the index of the output."""
        f, k = self.f, self.k
        first = f.div(place.block, k.op.parts)
        channels = [f.mul(f.add(first, j), k.lanes) for j in range(place.count // k.op.parts)]
        columns = [f.add(out_x, tile.start + t * tile.step) for t in range(tile.count)]
        return [(j, t, [place.n, c, *place.at, x]) for j, c in enumerate(channels) for t, x in enumerate(columns)]

    def finish(self, acc: Accumulators, place: TilePosition, out_x: Index, tile: PixelTile) -> None:
        """Applies the epilogue to a tile's sums and stores them."""
        f, k = self.f, self.k
        each, first = place.count // k.op.parts, f.div(place.block, k.op.parts)

        def store(t: Index, sums: Sequence[ir.Value]) -> None:
            column = f.add(out_x, tile.start, f.mul(t, tile.step))
            for j in range(each):
                index = [place.n, f.mul(f.add(first, j), k.lanes), *place.at, column]
                value = self.epilogue.apply(sums[j], index, others=sums[j + each :: each])
                f.store(value, self.out, offset_of(f, k.out, index), self.dtype, k.lanes)

        self.epilogue.each([[acc.value(j, t) for j in range(place.count)] for t in range(tile.count)], store)

    def padded_block(self, place: TilePosition) -> Index:
        """Index of the tile's first block where every group takes whole tiles (packed weights and bias)."""
        skipped = self.k.padded_blocks - self.k.group_blocks
        return self.f.add(place.block, self.f.mul(place.group, skipped))

    def initial(self, place: TilePosition) -> list[ir.Value]:
        """The bias of each block, or zero."""
        f, k = self.f, self.k
        if self.bias is None:
            return [zeros(vector(register_type(self.dtype), k.lanes))] * place.count
        if not k.packed[2]:
            base = f.address(self.bias, f.mul(place.group, k.group_out), self.dtype)
            return [collect(f, base, self.members(place, j), self.dtype) for j in range(place.count)]
        first = self.padded_block(place)
        return [f.load(self.bias, f.mul(f.add(first, j), k.lanes), self.dtype, k.lanes) for j in range(place.count)]

    def members(self, place: TilePosition, j: int) -> list[Index]:
        """Numbers in their group of the output channels of block `j` of a tile; lanes past the last one repeat it."""
        f, k = self.f, self.k
        part, j = divmod(j, place.count // k.op.parts)
        first = f.mul(f.add(f.div(place.block, k.op.parts), j), k.lanes)
        first = f.sub(first, f.mul(place.group, k.group_blocks * k.lanes))
        each = k.group_out // k.op.parts
        return [f.add(f.minimum(f.add(first, lane), each - 1), part * each) for lane in range(k.lanes)]

    def sweep(self, acc: Accumulators, place: TilePosition, in_x: Index, tile: PixelTile) -> None:
        """Adds all input channels of the group and all taps to a tile's accumulators."""
        f, k = self.f, self.k
        whole, tail = divmod(k.group_in, k.unit)
        with f.loop(0, whole) as q:
            self.taps(acc, place, in_x, tile, q, k.unit)
        if tail:
            self.taps(acc, place, in_x, tile, whole, tail)

    def taps(
        self, acc: Accumulators, place: TilePosition, in_x: Index, tile: PixelTile, q: Index, channels: int
    ) -> None:
        """All taps for the `channels` channels of unit `q` of the group."""
        f, k = self.f, self.k
        x = k.ins[0]
        channel = f.add(f.mul(place.group, k.group_in), f.mul(q, k.unit))
        start = f.add(f.mul(place.n, x.strides[0]), channel_offset(f, x, channel, k.unit))
        at = [] if k.flat else place.at
        with self.outer_taps(at, 0, start, 0) as (offset, tap):
            if k.flat:
                offset = f.add(offset, f.dot(place.at, x.strides[2:-1]))
            pixels = f.address(self.x, f.add(offset, f.mul(in_x, x.strides[-1])), self.dtype)
            self.row_taps(acc, place, pixels, tile, q, channels, tap)

    @contextmanager
    def outer_taps(self, at: Sequence[Index], axis: int, offset: Index, tap: Index) -> Iterator[tuple[Index, Index]]:
        """Loops over the taps of all dimensions but the innermost: yields input offset and number of the tap's row."""
        if axis == len(at):
            yield offset, tap
            return
        f, window = self.f, self.windows[axis]
        with live_taps(f, window, self.k.out.shape[2 + axis], at[axis]) as (k, index):
            further = f.add(offset, f.mul(index, self.k.ins[0].strides[2 + axis]))
            with self.outer_taps(at, axis + 1, further, f.add(f.mul(tap, window.kernel), k)) as found:
                yield found

    def row_taps(
        self,
        acc: Accumulators,
        place: TilePosition,
        pixels: ir.Value,
        tile: PixelTile,
        q: Index,
        channels: int,
        row: Index,
    ) -> None:
        """The taps along the row, and for each of them the channels."""
        f, k = self.f, self.k
        stride, size = k.ins[0].strides[-1], k.row_window.kernel
        step = 1 if k.ins[0].block > 1 else k.ins[0].strides[1]

        for run in tile.tap_runs():
            offsets = [None if r is None else r * stride for r in run.rels]
            with f.loop(0, run.count) as i:
                tap = f.add(f.mul(row, size), run.first, f.mul(i, run.step))
                base = f.address(pixels, f.mul(i, run.advance * stride), self.dtype)
                acc.multiply_add(base, offsets, step, channels, self.weights(place, q, channels, tap))
                if self.later is not None:
                    f.set(self.later, f.address(f.get(self.later, PTR), channels * k.asks, BYTE))

    def ask(self, c: Index) -> None:
        """Asks for what a later kernel waits for, while a tile sweeps channel `c` of a unit."""
        assert self.later is not None
        self.f.prefetch(self.f.get(self.later, PTR), self.f.mul(c, self.k.asks), BYTE, near=False)

    def weights(self, place: TilePosition, q: Index, channels: int, tap: Index):
        """The function that loads the weights of one channel of unit `q` at a tap, for a block of the tile."""
        f, k = self.f, self.k
        if not k.packed[1]:
            return self.loose_weights(place, q, tap)
        within = f.mul(f.add(f.mul(q, k.taps * k.unit), f.mul(tap, channels)), k.tile[0] * k.lanes)
        packed = self.own is None
        base = f.address(self.stream(place) if packed else self.own, within, self.dtype)
        ahead = self.ask if self.later is not None else None
        return PackedStream(f, base, k.tile[0], k.group_in * k.taps, self.dtype, k.lanes, ahead, follows=packed)

    def stream(self, place: TilePosition) -> ir.Value:
        """Where the packed weights of a tile begin."""
        f, k = self.f, self.k
        return f.address(self.w, f.mul(self.padded_block(place), k.lanes * k.group_in * k.taps), self.dtype)

    def scale_weights(self, place: TilePosition) -> None:
        """Packed weights of a tile times the factors of the input's channels, in the kernel's own memory."""
        f, k = self.f, self.k
        assert self.own is not None
        whole, tail = divmod(k.group_in, k.unit)
        weights, width = self.stream(place), k.tile[0] * k.lanes
        for lo, hi, channels in ((0, whole, k.unit), (whole, whole + bool(tail), tail)):
            with f.loop(lo, hi) as q, f.loop(0, k.taps) as tap, f.loop(0, channels) as c:
                first = f.mul(f.add(f.mul(q, k.taps * k.unit), f.mul(tap, channels), c), width)
                factor = f.splat(self.factor(place, q, c), k.lanes)
                for at in (f.add(first, j * k.lanes) for j in range(k.tile[0])):
                    value = f.b.fmul(f.load(weights, at, self.dtype, k.lanes), factor)
                    f.store(value, self.own, at, self.dtype, k.lanes)

    def factor(self, place: TilePosition, q: Index, c: Index) -> ir.Value:
        """The factor of channel `c` of unit `q` of the input."""
        f, k = self.f, self.k
        operand = k.ins[k.op.main - 1]
        channel = f.add(f.mul(q, k.unit), c)
        block, lane = f.div(channel, operand.block), f.rem(channel, operand.block)
        at = f.add(f.mul(block, operand.strides[1]), lane)
        image = f.mul(place.n, operand.strides[0]) if operand.shape[0] > 1 else 0
        return f.load(self.factors, f.add(image, at), self.dtype)

    def loose_weights(self, place: TilePosition, q: Index, tap: Index):
        """Weights that are no constants, read where they lie, one lane at a time."""
        f, k = self.f, self.k
        transposed = k.row_window.transposed or any(w.transposed for w in self.windows)
        per_out, per_in = (k.taps, k.group_out * k.taps) if transposed else (k.group_in * k.taps, k.taps)
        group = f.mul(place.group, k.group_in * k.group_out * k.taps)

        def load(c: Index, j: int) -> ir.Value:
            start = f.add(group, tap, f.mul(f.add(f.mul(q, k.unit), c), per_in))
            offsets = [f.add(start, f.mul(member, per_out)) for member in self.members(place, j)]
            value = collect(f, self.w, offsets, self.dtype)
            return value if self.factors is None else f.b.fmul(value, f.splat(self.factor(place, q, c), k.lanes))

        return load


def windows_of(kernel: ConvKernel) -> list[RowWindow]:
    """Windows of all dimensions but the innermost."""
    op, spatial = kernel.op, kernel.ins[0].shape[2:]
    parts = zip(spatial, op.kernel, op.strides, op.dilations, op.pads, strict=True)
    return [RowWindow(*part, op.name == "ConvTranspose") for part in parts][:-1]


def channel_offset(f: FunctionEmitter, operand: Operand, channel: Index, unit: int) -> Index:
    """Offset of a channel that is a multiple of `unit`, which divides the block."""
    if operand.block == 1:
        return f.mul(channel, operand.strides[1])
    inner = 0 if unit % operand.block == 0 else f.rem(channel, operand.block)
    return f.add(f.mul(f.div(channel, operand.block), operand.strides[1]), inner)
