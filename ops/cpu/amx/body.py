"""The code of a product in tile registers: chunks of a box, tiles of output channels, groups of pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product

from llvmlite import ir

from brickrt.ops.cpu.amx.gather import BYTE, Chunk, Gather
from brickrt.ops.cpu.amx.outputs import Outputs
from brickrt.ops.cpu.amx.scheme import CHANNEL_TILES, PIXEL_TILES, PIXELS, AmxScheme
from brickrt.ops.cpu.amx.sizes import ASKS, LANES, ROW_BYTES, ROWS, TILE_BYTES
from brickrt.ops.cpu.amx.tile_registers import TileRegisters
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I1, I64, PTR, Index
from brickrt.ops.cpu.emit.sizes import Size

L1_BYTES = 1 << 15
BYTES_AHEAD = 10 << 10  # as much as is read while a line comes from L2
FIRST_PIXELS = PIXEL_TILES * CHANNEL_TILES  # the number of a register, behind those of sums
FIRST_WEIGHTS = FIRST_PIXELS + PIXEL_TILES


class AmxBody:
    """Emits a product for the boxes of a shape class."""

    def __init__(self, kernel: AmxScheme, f: FunctionEmitter, gather: type[Gather] = Gather) -> None:
        self.k, self.f = kernel, f
        self.weights = f.pointer(2)
        self.bias = f.pointer(3) if kernel.op.bias else None
        self.work = f.pointer(1 + len(kernel.ins) + kernel.extra_pointers)
        self.area = f.address(self.work, kernel.area_at, BYTE)
        self.gather = gather(kernel, f, self.area)
        self.outputs = Outputs(kernel, f, self.work)
        self.registers = TileRegisters(f)
        asks = kernel.prefetch_bytes is not None
        self.later = f.local(PTR, f.pointer(len(kernel.ins) + kernel.extra_pointers)) if asks else None
        lo, hi = kernel.view.channels(f)
        width = CHANNEL_TILES * kernel.lanes
        self.first_tile, self.last_tile = f.div(lo, width), f.div(f.add(hi, width - 1), width)
        self.sweep: Index = 0
        self.share: Index = 0
        self.first: Index = 0  # of the tiles whose sums are kept
        self.offsets = f.local(I64, count=kernel.taps)  # bytes from a pixel to what each tap reads

    def emit(self) -> None:
        """All chunks of all images."""
        f, k = self.f, self.k
        self.registers.configure()
        planes, *spans = k.view.pixels(f)
        spans = self.joined(spans) if k.joins_rows else spans
        with f.loops(k.view.batches(f)) as batch, f.loop(*planes) as z:
            (top, bottom), (left, right) = spans
            most_columns = f.maximum(k.narrow, k.plane_pixels // (k.halos[0] + 1) - k.halos[1])
            with self.pieces(left, right, most_columns) as (x, columns):
                width = f.add(columns, k.halos[1])
                most_rows = f.maximum(1, f.sub(f.b.udiv(f.value(k.plane_pixels), f.value(width)), k.halos[0]))
                with self.pieces(top, bottom, most_rows) as (y, rows):
                    chunk = Chunk(batch, [z, y, x], rows, columns, width, self.span(rows, width))
                    self.set_offsets(chunk)
                    with self.pieces(self.first_tile, self.last_tile, self.most_tiles(chunk)) as (first, count):
                        self.first = first
                        with f.loop(0, k.sweeps) as self.sweep:
                            self.gather.emit(chunk, self.sweep)
                            self.tiles(chunk, first, f.add(first, count))
        self.registers.release()

    def joined(self, spans: Sequence[tuple[Index, Index]]) -> list[tuple[Index, Index]]:
        """Rows and columns of a box; as those of one row, where the pixels of its rows follow one another."""
        f, k = self.f, self.k
        (top, bottom), (left, right) = spans
        columns, together = f.sub(right, left), I1(1)
        for strides in k.walked:
            follows = f.b.icmp_signed("==", f.value(f.mul(columns, strides[-1])), f.value(strides[-2]))
            together = f.b.and_(together, follows)
        end = f.add(left, f.mul(f.sub(bottom, top), columns))
        ends = [f.b.select(together, f.value(x), f.value(y)) for x, y in ((f.add(top, 1), bottom), (end, right))]
        return [(top, ends[0]), (left, ends[1])]

    def span(self, rows: Index, width: Index) -> Index:
        """From one line of a pixel of a chunk to the next."""
        f, k = self.f, self.k
        return k.span(f, f.mul(f.mul(f.add(rows, k.halos[0]), width), k.planes))

    def most_tiles(self, chunk: Chunk) -> Index:
        """Tiles of output channels whose sums there is room for while parts of K follow; all where there is one."""
        f, k = self.f, self.k
        if k.sweeps == 1:
            return f.maximum(1, f.sub(self.last_tile, self.first_tile))
        return f.maximum(1, f.b.udiv(I64(k.kept_pixels), f.value(self.slots(chunk))))

    def slots(self, chunk: Chunk) -> Index:
        """Pixels of a tile of output channels whose sums are kept, and those beyond that are stored with them."""
        f = self.f
        return f.add(f.mul(f.sub(chunk.rows, 1), chunk.width), chunk.columns, PIXELS)

    @contextmanager
    def pieces(self, lo: Index, hi: Index, most: Index) -> Iterator[tuple[Index, Index]]:
        """Loop over the fewest pieces of up to `most`, about equal: where each begins, and how many it has."""
        f, b = self.f, self.f.b
        extent = f.sub(hi, lo)
        if extent == 1:
            yield lo, 1
            return
        count = b.udiv(f.value(f.add(extent, f.sub(most, 1))), f.value(most))
        count = f.value(f.maximum(1, count))
        each = b.udiv(f.value(f.add(extent, f.sub(count, 1))), count)
        with f.loop(0, count) as number:
            start = f.add(lo, f.mul(number, each))
            size = f.minimum(each, f.sub(hi, start))
            with f.when(f.b.icmp_signed(">", f.value(size), I64(0))):
                yield start, size

    def set_offsets(self, chunk: Chunk) -> None:
        """Where each tap reads in the planes of a chunk."""
        f, k, view = self.f, self.k, self.k.view
        rows = f.add(chunk.rows, k.halos[0])
        down, across = k.residues
        number = 0
        for plane in range(view.kernel[0]):
            for tap_y in range(view.kernel[1]):
                y, p = divmod(tap_y * view.dilations[1], view.strides[1])
                for tap_x in range(view.kernel[2]):
                    x, q = divmod(tap_x * view.dilations[2], view.strides[2])
                    image = (plane * len(down) + down.index(p)) * len(across) + across.index(q)
                    pixel = f.add(f.mul(f.add(f.mul(rows, image), y), chunk.width), x)
                    f.b.store(f.value(f.mul(pixel, k.pixel_bytes)), self.offset(number))
                    number += 1

    def offset(self, tap: Index) -> ir.Value:
        """Where the offset of a tap is kept."""
        return self.f.b.gep(self.offsets, [self.f.value(tap)], source_etype=I64)

    def tiles(self, chunk: Chunk, first: Index, last: Index) -> None:
        """Tiles [first, last) of output channels, the last of all of one block where their number is odd."""
        f, k = self.f, self.k
        whole = k.blocks // CHANNEL_TILES
        with f.loop(first, f.minimum(last, whole)) as tile:
            self.pixels(chunk, tile, CHANNEL_TILES)
        if isinstance(k.blocks, Size) or k.blocks % CHANNEL_TILES:
            with f.when(f.b.icmp_signed(">", f.value(last), f.value(whole))):
                self.pixels(chunk, whole, 1)

    def pixels(self, chunk: Chunk, tile: Index, blocks: int) -> None:
        """All pixels of a chunk by a tile of output channels."""
        f, k = self.f, self.k
        total = f.add(f.mul(f.sub(chunk.rows, 1), chunk.width), chunk.columns)
        stream = self.stream(chunk, tile, blocks)
        self.outputs.begin(chunk, f.mul(tile, CHANNEL_TILES), blocks)
        self.share = self.paced(total, blocks)
        if k.sweeps == 1:
            self.begin(self.work, tile, PIXEL_TILES, blocks)
        with f.loop(0, total, PIXELS) as first:
            count = f.minimum(PIXELS, f.sub(total, first))
            several = f.b.icmp_signed(">", f.value(count), I64(ROWS))
            kept = self.kept(chunk, tile, first)
            for tiles, fits in ((1, f.b.not_(several)), (PIXEL_TILES, several)):
                with f.when(fits):
                    if k.sweeps > 1:
                        self.begin(kept, tile, tiles, blocks)
                    self.group(chunk, stream, first, tiles, blocks)
                    self.outputs.rest()
                    self.end(kept, tile, tiles, blocks)
            with self.finishing():
                self.outputs.take(first, count)
        self.outputs.rest()

    def stream(self, chunk: Chunk, tile: Index, blocks: int) -> ir.Value:
        """The address of what a tile of output channels multiplies by."""
        f, k = self.f, self.k
        return f.address(self.weights, f.mul(f.mul(tile, CHANNEL_TILES), k.block_bytes), BYTE)

    def first_unit(self, tap: Index) -> Index:
        """The number of a tap's first unit of K in a stream."""
        f, k = self.f, self.k
        return f.add(f.mul(tap, k.units), f.mul(self.sweep, k.sweep))

    def kept(self, chunk: Chunk, tile: Index, first: Index) -> ir.Value:
        """Where the sums of a group of tiles are kept while parts of K follow."""
        f, k = self.f, self.k
        place = f.add(f.mul(f.sub(tile, self.first), self.slots(chunk)), first)
        behind = f.mul(chunk.span, k.lines)
        return f.address(self.area, f.add(behind, f.mul(place, k.kept_bytes)), BYTE)

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """The body runs in the last part of K."""
        if self.k.sweeps == 1:
            yield
            return
        with self.f.when(self.is_sweep(self.k.sweeps - 1)):
            yield

    def is_sweep(self, number: Index) -> ir.Value:
        """Whether it is the turn of a part of K."""
        return self.f.b.icmp_signed("==", self.f.value(self.sweep), self.f.value(number))

    def begin(self, kept: ir.Value, tile: Index, tiles: int, blocks: int) -> None:
        """The bias, or the sums of the parts of K before."""
        f, k = self.f, self.k
        for t, j in product(range(tiles), range(blocks)):
            self.bias_or_zero(t, j, tile)
        if k.sweeps > 1:
            with f.when(f.b.not_(self.is_sweep(0))):
                for t, j in product(range(tiles), range(blocks)):
                    self.registers.load(t * CHANNEL_TILES + j, self.place(kept, t, j), I64(k.kept_bytes))

    def bias_or_zero(self, t: int, j: int, tile: Index) -> None:
        """What the sums of tile `t` of pixels and block `j` begin with."""
        f, k = self.f, self.k
        if self.bias is None:
            self.registers.zero(t * CHANNEL_TILES + j)
        else:
            at = f.address(self.bias, f.mul(f.add(f.mul(tile, CHANNEL_TILES), j), LANES), k.sums)
            self.registers.load(t * CHANNEL_TILES + j, at, I64(0))

    def end(self, kept: ir.Value, tile: Index, tiles: int, blocks: int) -> None:
        """Sums to where they are finished, or kept for the next part. Where K has one part, each register begins with
        the next group's bias at once: that need not wait for the other registers' sums."""
        f, to = self.f, self.work
        if self.k.sweeps > 1:
            last = self.is_sweep(self.k.sweeps - 1)
            to = f.b.inttoptr(f.b.select(last, f.b.ptrtoint(self.work, I64), f.b.ptrtoint(kept, I64)), PTR)
        for t, j in product(range(tiles), range(blocks)):
            self.registers.store(t * CHANNEL_TILES + j, self.place(to, t, j), I64(self.k.kept_bytes))
            if self.k.sweeps == 1:
                self.bias_or_zero(t, j, tile)

    def place(self, base: ir.Value, tile: int, block: int) -> ir.Value:
        """Where the sums of a tile and a block lie: [pixel][block][lanes]."""
        return self.f.address(base, tile * ROWS * self.k.kept_bytes + block * ROW_BYTES, BYTE)

    def group(self, chunk: Chunk, stream: ir.Value, first: Index, tiles: int, blocks: int) -> None:
        """The sums of some tiles of pixels, from pixel `first` on, by a tile of up to 32 channels."""
        f, k = self.f, self.k
        start = f.address(self.area, f.mul(first, k.pixel_bytes), BYTE)
        step_bytes = blocks * k.step_bytes
        for part in range(k.factors.parts):
            f.mul(chunk.span, part)  # known in the loops below
        with f.loop(0, k.taps) as tap:
            pixels = f.address(start, f.b.load(self.offset(tap), typ=I64), BYTE)
            weights = f.address(stream, f.mul(self.first_unit(tap), step_bytes), BYTE)
            with f.loop(0, f.minimum(k.sweep, f.sub(k.units, f.mul(self.sweep, k.sweep)))) as unit:
                at = f.address(pixels, f.mul(f.mul(unit, k.factors.parts), chunk.span), BYTE)
                words = f.address(weights, f.mul(unit, step_bytes), BYTE)
                self.step(chunk, at, words, tiles, blocks)
                self.prefetch(words, first, blocks)
                if self.later is not None:
                    self.ask(self.later)
                if k.sweeps == 1:
                    self.outputs.some()

    def ask(self, later: ir.Value) -> None:
        """Prefetches the next weights of a later kernel."""
        f, pace = self.f, self.k.prefetch_bytes
        assert pace is not None
        at = f.get(later, PTR)
        for n in range(ASKS):
            f.prefetch(at, f.mul(pace, n), BYTE, near=False)
        f.set(later, f.address(at, f.mul(pace, ASKS), BYTE))

    def bring_near(self, tile: ir.Value, blocks: int) -> None:
        """Asks for the lines that lie BYTES_AHEAD beyond a part of weights, in a stream that L1 does not hold. Where
        weights have one part, that takes as long as it saves."""
        if self.k.factors.weight_parts > 1 and blocks * self.k.block_bytes > L1_BYTES:
            for line in range(ROWS):
                self.f.prefetch(tile, BYTES_AHEAD + line * ROW_BYTES, BYTE)

    def paced(self, total: Index, blocks: int) -> Index:
        """Lines of the next stream of weights that each step of a group of tiles asks for: those of a step come while
        all groups of pixels take it."""
        f = self.f
        groups = f.div(f.add(total, PIXELS - 1), PIXELS)
        lines = blocks * self.k.factors.weight_parts * ROWS
        return f.value(f.b.udiv(f.value(f.add(groups, lines - 1)), f.value(groups)))

    def prefetch(self, weights: ir.Value, first: Index, blocks: int) -> None:
        """Asks for a group's share of what the next tile of output channels takes in the place of `weights`."""
        f, k = self.f, self.k
        start = f.mul(f.div(first, PIXELS), self.share)
        with f.loop(0, self.share) as line:
            at = f.add(f.mul(f.add(start, line), ROW_BYTES), blocks * k.block_bytes)
            f.prefetch(weights, at, BYTE, near=False)

    def step(self, chunk: Chunk, pixels: ir.Value, weights: ir.Value, tiles: int, blocks: int) -> None:
        """The products of a unit of K: each part of pixels or weights is loaded when it is another than before."""
        f, k = self.f, self.k
        held: tuple[int, int] | tuple[None, None] = (None, None)
        for order in k.factors.order:
            if order[0] != held[0]:
                for t in range(tiles):
                    at = f.address(pixels, f.add(f.mul(chunk.span, order[0]), t * ROWS * k.pixel_bytes), BYTE)
                    self.registers.load(FIRST_PIXELS + t, at, I64(k.pixel_bytes))
            if order[1] != held[1]:
                for j in range(blocks):
                    at = f.address(weights, (order[1] * blocks + j) * TILE_BYTES, BYTE)
                    self.registers.load(FIRST_WEIGHTS + j, at, I64(ROW_BYTES))
                    if order == next(each for each in k.factors.order if each[1] == order[1]):
                        self.bring_near(at, blocks)
            held = order
            for t in range(tiles):
                for j in range(blocks):
                    numbers = t * CHANNEL_TILES + j, FIRST_PIXELS + t, FIRST_WEIGHTS + j
                    self.registers.multiply(*numbers, k.factors.instruction)
