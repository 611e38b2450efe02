"""The code of a product in tile registers: chunks of a box, tiles of output channels, groups of pixels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from brickrt.ops.cpu.amx.gather import BYTE, Chunk, Gather
from brickrt.ops.cpu.amx.outputs import Outputs
from brickrt.ops.cpu.amx.scheme import BLOCKS, PIXELS, TILES, AmxScheme
from brickrt.ops.cpu.amx.tile_registers import ROW_BYTES, ROWS, TILE_BYTES, TileRegisters
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I64, Index

FIRST_PIXELS, FIRST_WEIGHTS = TILES * BLOCKS, TILES * BLOCKS + TILES  # numbers of registers, behind those of sums


class AmxBody:
    """Emits a product for the boxes of a shape class."""

    def __init__(self, kernel: AmxScheme, f: FunctionEmitter) -> None:
        self.k, self.f = kernel, f
        self.weights = f.pointer(2)
        self.work = f.pointer(1 + len(kernel.ins) + kernel.extra_pointers)
        self.area = f.address(self.work, kernel.area_at, BYTE)
        self.gather = Gather(kernel, f, self.area)
        self.outputs = Outputs(kernel, f, self.work)
        self.registers = TileRegisters(f)
        self.offsets = f.local(I64, count=kernel.taps)  # bytes from a pixel to what each tap reads

    def emit(self) -> None:
        """All chunks of all images."""
        f, k = self.f, self.k
        self.registers.configure()
        planes, *spans = k.view.pixels(f)
        with f.loops(k.view.batches(f)) as batch, f.loop(*planes) as z:
            (top, bottom), (left, right) = spans
            with self.pieces(left, right, k.most_columns) as (x, columns):
                width = f.add(columns, k.halos[1])
                with self.pieces(top, bottom, self.most_rows(width)) as (y, rows):
                    chunk = Chunk(batch, [z, y, x], rows, columns, width)
                    self.gather.emit(chunk)
                    self.set_offsets(chunk)
                    self.tiles(chunk)
        self.registers.release()

    def most_rows(self, width: Index) -> Index:
        """Rows of a chunk, at most, whose planes have rows of so many pixels."""
        f, k = self.f, self.k
        rows = f.b.udiv(I64(k.plane_pixels), f.value(width))
        return f.maximum(1, f.sub(rows, k.halos[0]))

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

    def tiles(self, chunk: Chunk) -> None:
        """All tiles of output channels that the box touches, the last of one block where their number is odd."""
        f, k = self.f, self.k
        lo, hi = k.view.channels(f)
        width, whole = BLOCKS * k.lanes, k.blocks // BLOCKS
        last = f.div(f.add(hi, width - 1), width)
        with f.loop(f.div(lo, width), f.minimum(last, whole)) as tile:
            self.pixels(chunk, tile, BLOCKS)
        if k.blocks % BLOCKS:
            with f.when(f.b.icmp_signed(">", f.value(last), I64(whole))):
                self.pixels(chunk, whole, 1)

    def pixels(self, chunk: Chunk, tile: Index, blocks: int) -> None:
        """All pixels of a chunk by a tile of output channels."""
        f, k = self.f, self.k
        total = f.add(f.mul(f.sub(chunk.rows, 1), chunk.width), chunk.columns)
        stream = f.address(self.weights, f.mul(f.mul(tile, BLOCKS), k.block_bytes), BYTE)
        self.outputs.begin(chunk, f.mul(tile, BLOCKS), blocks)
        with f.loop(0, total, PIXELS) as first:
            count = f.minimum(PIXELS, f.sub(total, first))
            several = f.b.icmp_signed(">", f.value(count), I64(ROWS))
            for tiles, fits in ((1, f.b.not_(several)), (TILES, several)):
                with f.when(fits):
                    self.group(stream, first, tiles, blocks)
            self.outputs.finish(count)

    def group(self, stream: ir.Value, first: Index, tiles: int, blocks: int) -> None:
        """The sums of some tiles of pixels, from pixel `first` on, by a tile of up to 32 channels."""
        f, k = self.f, self.k
        for t in range(tiles):
            for j in range(blocks):
                self.registers.zero(t * BLOCKS + j)
        start = f.address(self.area, f.mul(first, k.pixel_bytes), BYTE)
        step_bytes = blocks * k.step_bytes
        with f.loop(0, k.taps) as tap:
            pixels = f.address(start, f.b.load(self.offset(tap), typ=I64), BYTE)
            weights = f.address(stream, f.mul(tap, k.units * step_bytes), BYTE)
            with f.loop(0, k.units) as unit:
                at = f.address(pixels, f.mul(unit, ROW_BYTES), BYTE)
                self.step(at, f.address(weights, f.mul(unit, step_bytes), BYTE), tiles, blocks)
        for t in range(tiles):
            for j in range(blocks):
                self.registers.store(t * BLOCKS + j, self.outputs.sums(t * ROWS, j), I64(BLOCKS * ROW_BYTES))

    def step(self, pixels: ir.Value, weights: ir.Value, tiles: int, blocks: int) -> None:
        """The products of a unit of K: each part of pixels or weights is loaded when it is another than before."""
        f, k = self.f, self.k
        held: tuple[int, int] | tuple[None, None] = (None, None)
        for order in k.factors.order:
            if order[0] != held[0]:
                for t in range(tiles):
                    at = f.address(pixels, order[0] * k.part_bytes + t * ROWS * k.pixel_bytes, BYTE)
                    self.registers.load(FIRST_PIXELS + t, at, I64(k.pixel_bytes))
            if order[1] != held[1]:
                for j in range(blocks):
                    at = f.address(weights, (order[1] * blocks + j) * TILE_BYTES, BYTE)
                    self.registers.load(FIRST_WEIGHTS + j, at, I64(ROW_BYTES))
            held = order
            for t in range(tiles):
                for j in range(blocks):
                    numbers = t * BLOCKS + j, FIRST_PIXELS + t, FIRST_WEIGHTS + j
                    self.registers.multiply(*numbers, k.factors.instruction)
