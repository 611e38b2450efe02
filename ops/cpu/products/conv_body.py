"""The code of a direct convolution: loops over images, groups, tiles of channels, rows, tiles of pixels; the sweep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I64, PTR, Index, register_type, vector
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.operands.epilogue import offset_of
from brickrt.ops.cpu.products.conv_operands import BYTE, ConvOperands, TilePosition
from brickrt.ops.cpu.products.conv_scheme import ConvScheme
from brickrt.ops.cpu.products.image_pairs import ImagePairs
from brickrt.ops.cpu.products.live_taps import first_input, live_taps, tile_place, walked_taps, walked_tiles
from brickrt.ops.cpu.products.register_tile import Accumulators
from brickrt.ops.cpu.products.row_tiles import PixelTile, RepeatedTiles
from brickrt.ops.cpu.products.rows.pace import Pace
from brickrt.ops.cpu.products.rows.short_rows import RowTiles
from brickrt.ops.cpu.products.words.late_epilogue import LateEpilogue
from brickrt.ops.cpu.products.words.packed_pixels import PackedPixels
from brickrt.ops.cpu.products.words.paired_bytes import PixelPairs


class ConvBody(ConvOperands):
    """Emits a convolution for the boxes of a shape class."""

    def __init__(self, kernel: ConvScheme, f: FunctionEmitter, last: ConvBody | None = None) -> None:
        """`last` emits the last block of output channels, where that has code of its own."""
        super().__init__(kernel, f)
        self.last = last
        if kernel.finishes_late:
            kind = vector(register_type(kernel.sums), kernel.lanes)
            self.late = LateEpilogue(f, kind, self.most, kernel.out.type.rank, self.put)

    @property
    def most(self) -> int:
        """Most pixels of a tile."""
        return self.k.tile[1]

    def emit(self) -> None:
        """All images, groups and chunks of input channels; `group` is called for the blocks that a box has of each."""
        f, k = self.f, self.k
        self.pace = self.paced() if k.shares_chunks else None
        lo, hi = f.box(1)
        first, last = (f.mul(f.div(end, k.lanes), k.op.gate_parts) for end in (lo, f.add(hi, k.lanes - 1)))
        gb, grouped = k.group_blocks, k.op.groups > 1
        groups = (f.div(first, gb), f.div(f.add(last, gb - 1), gb)) if grouped else (0, 1)
        with f.loop(*f.box(0)) as n, f.loop(*groups) as g:
            start = f.mul(g, gb)
            if self.pairs is not None:
                ImagePairs(k, f, self.x, self.boxes, self.pairs, self.row_number).emit(n)
            bounds = (f.maximum(first, start), f.minimum(last, f.add(start, gb))) if grouped else (first, last)
            with f.loop(0, 1 if k.shares_chunks else k.chunks) as chunk:
                self.group(TilePosition(n, g, chunk, 0, 0, []), *bounds)
        if self.late is not None:
            self.late.rest()

    def group(self, place: TilePosition, first: Index, last: Index) -> None:
        """All blocks [first, last) of output channels, which belong to one group, of a chunk of its input channels."""
        f, k, (ob, _) = self.f, self.k, self.k.tile
        start, rest = f.mul(place.group, k.group_blocks), int(k.whole_blocks % ob)
        end = f.add(start, k.whole_blocks)
        if k.whole_blocks >= ob:
            with f.loop(first, f.minimum(last, f.sub(end, rest)), ob) as block:
                self.blocks(replace(place, block=block, count=ob))
        if rest:
            with f.loop(f.maximum(first, f.sub(end, rest)), f.minimum(last, end), rest) as block:
                self.blocks(replace(place, block=block, count=rest))
        if self.last:
            with f.loop(f.maximum(first, end), last) as block:
                self.last.blocks(replace(place, block=block, count=1))

    def blocks(self, place: TilePosition) -> None:
        """The blocks of channels of a tile, for all pixels of the box."""
        f, k = self.f, self.k
        if not k.packed[1]:  # outside of all loops: LLVM takes seconds to find out that they are the same everywhere
            self.known_members = [self.members(place, j) for j in range(place.count)]
        with nullcontext(place.chunk) if not k.shares_chunks else f.loop(0, k.chunks) as chunk:
            at = replace(place, chunk=chunk)
            if self.copied_weights is not None:
                self.copy_weights(at)
            self.rows(at)

    def rows(self, place: TilePosition) -> None:
        """All rows of output pixels."""
        f, k = self.f, self.k
        if k.flat:
            *at, x = [lo for lo, _ in self.boxes]
            self.row(replace(place, at=at), x)
            return
        with f.loops(self.boxes[:-1]) as at:
            self.row(replace(place, at=at), self.boxes[-1][0])

    def runs(self) -> list[RepeatedTiles]:
        """The tiles of a row."""
        k = self.k
        return RowTiles(self.most, k.tile[0], k.isa, twice=k.chunks == 1).runs(k.row_window, k.row_class)

    def paced(self) -> Pace:
        """How tiles of a box ask for weights."""
        f, k = self.f, self.k
        rows: Index = 1
        for lo, hi in [] if k.flat else self.boxes[:-1]:
            rows = f.mul(rows, f.sub(hi, lo))
        return Pace(f, k.tile[0] * k.lanes, self.runs(), rows)

    def row_number(self, at: Sequence[Index]) -> Index:
        """The number of a row in its box."""
        f = self.f
        number: Index = 0
        for x, (lo, hi) in zip(at, [] if self.k.flat else self.boxes, strict=False):
            number = f.add(f.mul(number, f.sub(hi, lo)), f.sub(x, lo))
        return number

    def pixel_number(self, place: TilePosition, x: Index) -> Index:
        """The number of the pixel at `x` of a row in its box."""
        f, (lo, hi) = self.f, self.boxes[-1]
        return f.sub(f.add(f.mul(self.row_number(place.at), f.sub(hi, lo)), x), lo)

    def row(self, place: TilePosition, x: Index) -> None:
        """One row of output pixels, from `x` on: runs of tiles."""
        f, k = self.f, self.k
        if k.walks_taps:
            self.walked_row(place, x, self.boxes[-1][1])
            return
        first, row = first_input(f, k.row_window, x), self.row_number(place.at) if self.pace else 0
        for i, run in enumerate(self.runs()):
            with f.loop(0, run.repeat) as r:
                number = self.pace.number(i, r, row) if self.pace else 0
                self.tile(replace(place, number=number), *tile_place(f, run, x, first, r), run.tile)

    def tile(self, place: TilePosition, out_x: Index, in_x: Index, tile: PixelTile) -> None:
        """One register tile, from bias to store. `in_x` is the input that relative index 0 stands for, or, where taps
        are walked, the output again."""
        f, chunks = self.f, self.k.chunks
        acc = self.accumulators(place, tile.count)
        if self.pairs is not None:
            self.take_pairs(self.pairs, acc, place, out_x)
        if not self.k.shares_chunks:
            self.prefetch_outputs(place, out_x, tile)
        if chunks == 1:
            self.prefetch_others(place, out_x, tile)
            self.sweep(acc, place, in_x, tile)
            self.finish(acc, place, out_x, tile)
            return
        last = f.b.icmp_signed("==", f.value(place.chunk), f.value(chunks - 1))
        with f.when(last):
            self.prefetch_others(place, out_x, tile)
            if self.k.shares_chunks:
                self.prefetch_outputs(place, out_x, tile)
        with f.when(f.b.icmp_signed(">", f.value(place.chunk), I64(0))):
            self.restore(acc, place, out_x, tile)
        self.sweep(acc, place, in_x, tile)
        with f.when(last):
            self.finish(acc, place, out_x, tile)
        with f.when(f.b.not_(last)):
            self.keep(acc, place, out_x, tile)

    def take_pairs(self, pairs: PixelPairs, acc: Accumulators, place: TilePosition, out_x: Index) -> None:
        """Takes from sums what the pairs of their pixels sum to."""
        first = self.pixel_number(place, out_x)
        acc.change(lambda value, t: pairs.less(value, self.f.add(first, t)))

    def prefetch_outputs(self, place: TilePosition, out_x: Index, tile: PixelTile) -> None:
        """Prefetches what the epilogue of a tile reads and writes, but for lines stored whole, as nothing waits
        for these, and where weights come at an even pace, as a burst of both would keep them waiting."""
        target = None if self.k.packs_outputs or self.k.shares_chunks else self.out
        for _, t, index in self.places(place, out_x, tile):
            within = tile.step == 1 and t < tile.count - 1
            self.epilogue.prefetch(target, index, t if within else 0)

    def restore(self, acc: Accumulators, place: TilePosition, out_x: Index, tile: PixelTile) -> None:
        """Continues with the sums that `keep` left."""
        f, k = self.f, self.k
        for j, t, base, offset in self.kept_places(place, out_x, tile):
            acc.put(j, t, f.load(base, offset, k.sums, k.lanes))

    def keep(self, acc: Accumulators, place: TilePosition, out_x: Index, tile: PixelTile) -> None:
        """Stores sums until the next chunk of input channels is swept."""
        f, k = self.f, self.k
        for j, t, base, offset in self.kept_places(place, out_x, tile):
            f.store(acc.value(j, t), base, offset, k.sums, k.lanes)

    def kept_places(self, place: TilePosition, out_x: Index, tile: PixelTile) -> list[tuple[int, int, ir.Value, Index]]:
        """Per block and pixel of a tile their numbers, and where their sums are kept: in the output where it is of
        their type, else in the workspace, those of a pixel side by side."""
        f, k = self.f, self.k
        if self.kept is None:
            return [(j, t, self.out, offset_of(f, k.out, index)) for j, t, index in self.places(place, out_x, tile)]
        first = f.mul(self.pixel_number(place, out_x), place.count * k.lanes)
        base = f.address(self.kept, first, k.sums)
        pixels = range(tile.count)
        each = place.count * k.lanes
        return [(j, t, base, t * tile.step * each + j * k.lanes) for j in range(place.count) for t in pixels]

    def prefetch_others(self, place: TilePosition, out_x: Index, tile: PixelTile) -> None:
        """Prefetches what later kernels stream at a tile's pixels; tiles of channels share blocks of channels."""
        f, (ob, _) = self.f, self.k.tile
        for pointer, later in zip(self.prefetched, self.k.prefetched, strict=True):
            operand, blocks = later.operand, later.operand.channel_blocks
            each = -(-blocks // -(-self.k.group_blocks // ob))
            for j in range(each):
                block = f.minimum(f.add(f.mul(f.div(place.block, ob), each), j), blocks - 1)
                for t in range(tile.count):
                    x = f.add(out_x, t * tile.step)
                    index = [place.n, f.mul(block, operand.block), *place.at, x]
                    f.prefetch(pointer, offset_of(f, operand, index), operand.dtype, later.write, near=False)

    def accumulators(self, place: TilePosition, count: int) -> Accumulators:
        """The sums of `count` pixels, begun with the bias."""
        f, k = self.f, self.k
        return Accumulators.create(f, self.initial(place), count, k.x.dtype, k.lanes, self.dot)

    def places(self, place: TilePosition, out_x: Index, tile: PixelTile) -> list[tuple[int, int, list[Index]]]:
        """Per block and pixel that a tile gives their numbers, and the index of the output."""
        f, k = self.f, self.k
        first = f.div(place.block, k.op.gate_parts)
        channels = [f.mul(f.add(first, j), k.lanes) for j in range(place.count // k.op.gate_parts)]
        columns = [f.add(out_x, t * tile.step) for t in range(tile.count)]
        return [(j, t, [place.n, c, *place.at, x]) for j, c in enumerate(channels) for t, x in enumerate(columns)]

    def finish(self, acc: Accumulators, place: TilePosition, out_x: Index, tile: PixelTile) -> None:
        """Applies the epilogue to a tile's sums and stores them."""
        f, k = self.f, self.k
        each, first = place.count // k.op.gate_parts, f.div(place.block, k.op.gate_parts)
        if self.late is not None:
            self.late.rest()
            self.late.put([acc.value(0, t) for t in range(tile.count)], self.places(place, out_x, tile)[0][2])
            return
        if k.packs_outputs and tile.step == 1:
            self.store_packed(acc, place, out_x, tile)
            return

        def store(t: Index, sums: Sequence[ir.Value]) -> None:
            column = f.add(out_x, f.mul(t, tile.step))
            for j in range(each):
                index = [place.n, f.mul(f.add(first, j), k.lanes), *place.at, column]
                self.put(sums[j], index, sums[j + each :: each])

        self.epilogue.each([[acc.value(j, t) for j in range(place.count)] for t in range(tile.count)], store)

    def store_packed(self, acc: Accumulators, place: TilePosition, out_x: Index, tile: PixelTile) -> None:
        """As `finish` outputs that are bytes, pixels that lie side by side together."""
        f, k = self.f, self.k
        sums = [[acc.value(j, t) for t in range(tile.count)] for j in range(place.count)]
        channels = [f.mul(f.add(place.block, j), k.lanes) for j in range(place.count)]
        pixels = PackedPixels(f, self.epilogue, self.out, k.out)
        pixels.store(sums, lambda j, t: [place.n, channels[j], *place.at, f.add(out_x, t)])

    def put(self, value: ir.Value, index: list[Index], others: Sequence[ir.Value] = ()) -> None:
        """Applies the epilogue to a vector of sums and stores it."""
        f, k = self.f, self.k
        value = self.epilogue.apply(value, index, others=others)
        f.store(value, self.out, offset_of(f, k.out, index), k.out.dtype, k.lanes)

    def sweep(self, acc: Accumulators, place: TilePosition, in_x: Index, tile: PixelTile) -> None:
        """Adds all input channels of a chunk and all taps to a tile's accumulators."""
        f, k = self.f, self.k
        whole, tail = k.whole_units, k.tail
        first = f.mul(place.chunk, k.chunk_units)
        if k.packed[1]:  # what these have alike in all units is known from here on
            self.stream(place)
            self.ask(place, first, k.unit, 0)
        pixels = self.pixels(place, in_x)
        with f.loop(first, f.minimum(f.add(first, k.chunk_units), whole) if k.chunks > 1 else whole) as q:
            self.taps(acc, place, (pixels, in_x), tile, q, k.unit)
        if tail and k.chunks > 1:
            with f.when(f.b.icmp_signed("==", f.value(place.chunk), f.value(k.chunks - 1))):
                self.taps(acc, place, (pixels, in_x), tile, whole, tail)
        elif tail:
            self.taps(acc, place, (pixels, in_x), tile, whole, tail)

    def pixels(self, place: TilePosition, in_x: Index) -> ir.Value:
        """Address of the first of a tile's pixels, as far as it is the same for all channels and rows of taps. Where
        taps are walked, that of its image."""
        f, k = self.f, self.k
        x = k.x
        row = f.dot(place.at, x.strides[2:-1]) if k.flat else 0
        column = 0 if k.walks_taps else f.mul(in_x, x.strides[-1])
        return f.address(self.x, f.add(f.mul(place.n, x.strides[0]), row, column), x.dtype)

    def taps(
        self,
        acc: Accumulators,
        place: TilePosition,
        first: tuple[ir.Value, Index],
        tile: PixelTile,
        q: Index,
        channels: int,
    ) -> None:
        """All taps for the `channels` channels of unit `q` of the group; `first` are the tile's `pixels`, and what
        stands for `in_x`."""
        f, k, (pixels, in_x) = self.f, self.k, first
        channel = f.add(f.mul(place.group, k.group_in), f.mul(q, k.unit))
        start = channel_offset(f, k.x, channel, k.unit)
        with self.outer_taps([] if k.flat else place.at, 0, start, 0) as (offset, tap):
            row = f.address(pixels, offset, k.x.dtype)
            if k.walks_taps:
                self.walked_taps(acc, place, row, in_x, q, channels, tap)
                return
            self.row_taps(acc, place, row, tile, q, channels, tap)

    @contextmanager
    def outer_taps(self, at: Sequence[Index], axis: int, offset: Index, tap: Index) -> Iterator[tuple[Index, Index]]:
        """Loops over the taps of all dimensions but the innermost: yields input offset and number of the tap's row."""
        if axis == len(at):
            yield offset, tap
            return
        f, window = self.f, self.windows[axis]
        with live_taps(f, window, self.k.out.shape[2 + axis], at[axis]) as (k, index):
            further = f.add(offset, f.mul(index, self.k.x.strides[2 + axis]))
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
        stride, size = k.x.strides[-1], k.row_window.kernel
        step = 1 if k.x.block > 1 else k.x.strides[1]

        for run in tile.tap_runs():
            offsets = [None if r is None else r * stride for r in run.rels]
            with f.loop(0, run.count) as i:
                tap = f.add(f.mul(row, size), run.first, f.mul(i, run.step))
                base = f.address(pixels, f.mul(i, run.advance * stride), k.x.dtype)
                acc.multiply_add(base, offsets, step, channels, self.weights(place, q, channels, tap))
                if self.later is not None and k.prefetch_bytes is not None:
                    f.set(self.later, f.address(f.get(self.later, PTR), channels * k.prefetch_bytes, BYTE))

    def walked_row(self, place: TilePosition, x: Index, end: Index) -> None:
        """One row of output pixels where taps are walked: several at a time that lie side by side, then single ones."""
        for pixel, count in walked_tiles(self.f, self.k.row_window, x, end, self.most):
            self.tile(place, pixel, pixel, PixelTile(1, count, ()))

    def walked_taps(
        self, acc: Accumulators, place: TilePosition, inputs: ir.Value, x: Index, q: Index, channels: int, row: Index
    ) -> None:
        """The taps along the row that outputs from `x` on read, and for each of them the channels; `inputs` is where
        the row of inputs begins."""
        f, k = self.f, self.k
        window, operand, extent = k.row_window, k.x, k.out.shape[-1]
        step = 1 if operand.block > 1 else operand.strides[1]

        for tap, index, reads in walked_taps(f, window, extent, x, acc.pixels):
            offsets = [None if read is None else read * operand.strides[-1] for read in reads]
            pixel = f.address(inputs, f.mul(index, operand.strides[-1]), operand.dtype)
            number = f.add(f.mul(row, window.kernel), tap)
            acc.multiply_add(pixel, offsets, step, channels, self.weights(place, q, channels, number))


def channel_offset(f: FunctionEmitter, operand: Operand, channel: Index, unit: int) -> Index:
    """Offset of a channel that is a multiple of `unit`, which divides the block."""
    if operand.block == 1:
        return f.mul(channel, operand.strides[1])
    inner = 0 if unit % operand.block == 0 else f.rem(channel, operand.block)
    return f.add(f.mul(f.div(channel, operand.block), operand.strides[1]), inner)
