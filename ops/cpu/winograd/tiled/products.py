"""The products of a Winograd convolution in tile registers: a register tile's sixteen tiles are the rows of a tile, and
each float32 is three parts of bfloat16 (`amx/factors.py`), which are told apart once for each plane of a group
(`parts.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product

from llvmlite import ir

from brickrt.ops.cpu.amx.gather import BYTE
from brickrt.ops.cpu.amx.sizes import ROW_BYTES, ROWS, SPLIT, TILE_BYTES
from brickrt.ops.cpu.amx.tile_registers import TileRegisters
from brickrt.ops.cpu.emit.llvm_types import I64, Index
from brickrt.ops.cpu.winograd.frame import TileGroup, WinogradFrame
from brickrt.ops.cpu.winograd.products import Products
from brickrt.ops.cpu.winograd.tiled.parts import SplitInput
from brickrt.ops.cpu.winograd.tiled.scheme import TILE_FLOATS, TiledScheme

TILES = BLOCKS = 2  # of pixels and of output channels, whose sums are in registers at a time
FIRST_PIXELS, FIRST_WEIGHTS = TILES * BLOCKS, TILES * BLOCKS + TILES  # numbers of registers, behind those of sums
AHEAD = 10 << 10  # bytes: as much as is read while a line comes from L3


class TiledProducts(Products):
    """Emits the products."""

    k: TiledScheme

    def __init__(self, frame: WinogradFrame, kernel: TiledScheme) -> None:
        super().__init__(frame)
        self.k = kernel
        self.registers = TileRegisters(self.f)
        self.parts = SplitInput(frame, kernel)

    def emit(self, group: TileGroup) -> None:
        """See `Products`; the parts of the first plane are told apart before."""
        self.parts.begin(group, 0)
        self.parts.finish()
        super().emit(group)

    def begin(self, group: TileGroup, plane: Index) -> None:
        """The parts of the next plane are told apart meanwhile."""
        self.parts.begin(group, self.f.add(plane, 1))

    def end(self) -> None:
        """And what of them is left."""
        self.parts.finish()

    def blocks(self, group: TileGroup, live: tuple[Index, Index], plane: Index, block: Index, count: int) -> None:
        """`count` blocks of output channels, for two register tiles at a time of those that are `live`."""
        f, k, frame = self.f, self.k, self.frame
        with f.loop(group.lo, group.hi) as at, f.loop(*live, TILES) as g:
            row = f.add(f.mul(f.sub(at, group.lo), group.blocks), g)
            place = f.add(f.mul(row, frame.own), f.sub(block, frame.first_block))
            to = f.address(frame.m, f.add(f.mul(plane, k.plane_out), f.mul(place, TILE_FLOATS)), frame.dtype)
            several = f.b.icmp_signed("<", f.value(f.add(g, 1)), f.value(live[1]))
            for tiles, fits in ((1, f.b.not_(several)), (TILES, several)):
                with f.when(fits), self.sums(to, tiles, count), self.live_taps(at) as (tap, z):
                    weights = self.panel(plane, f.div(block, k.ob), tap, 0)
                    with f.loop(0, k.units) as unit:
                        unit_weights = f.address(weights, f.mul(unit, SPLIT.parts * k.ob * TILE_BYTES), BYTE)
                        pixels = self.parts.at(plane, self.parts.number(z, g), unit)
                        with f.b.if_else(self.parts.some()) as (some, none):
                            with some:
                                self.step(pixels, unit_weights, tiles, count, self.parts.next())
                            with none:
                                self.step(pixels, unit_weights, tiles, count)

    @contextmanager
    def sums(self, to: ir.Value, tiles: int, count: int) -> Iterator[None]:
        """The body adds to sums, which are stored then: blocks of a register tile after each other."""
        f = self.f
        for t, j in product(range(tiles), range(count)):
            self.registers.zero(t * BLOCKS + j)
        yield
        for t, j in product(range(tiles), range(count)):
            start = f.address(to, f.mul(f.add(f.mul(self.frame.own, t), j), TILE_BYTES), BYTE)
            self.registers.store(t * BLOCKS + j, start, I64(ROW_BYTES))

    def panel(self, plane: Index, tile: Index, tap: Index, residue: Index) -> ir.Value:
        """See `Products`."""
        f, k = self.f, self.k
        number = f.add(f.mul(plane, -(-k.out.channel_blocks // k.ob)), tile)
        first = f.add(f.mul(number, k.axes.swept.r), tap)
        return f.address(self.frame.w, f.mul(first, k.panel_elements), self.frame.dtype)

    def step(
        self,
        pixels: ir.Value,
        weights: ir.Value,
        tiles: int,
        count: int,
        beside: tuple[ir.Value, ir.Value] | None = None,
    ) -> None:
        """The products of a unit: each part of pixels or weights is loaded when it is another than before. Rows of
        another unit are split `beside` them."""
        f, k = self.f, self.k
        held, asked = (-1, -1), set[int]()
        multiplied, products = 0, len(SPLIT.order) * tiles * count
        for order in SPLIT.order:
            for t in range(tiles if order[0] != held[0] else 0):
                at = (t * k.units * SPLIT.parts + order[0]) * TILE_BYTES
                self.registers.load(FIRST_PIXELS + t, f.address(pixels, at, BYTE), I64(ROW_BYTES))
            for j in range(count if order[1] != held[1] else 0):
                at = f.address(weights, (order[1] * k.ob + j) * TILE_BYTES, BYTE)
                self.registers.load(FIRST_WEIGHTS + j, at, I64(ROW_BYTES))
                for line in range(ROWS if order[1] not in asked else 0):
                    f.prefetch(at, AHEAD + line * ROW_BYTES, BYTE)
            asked.add(order[1])
            held = order
            for t, j in product(range(tiles), range(count)):
                self.registers.multiply(t * BLOCKS + j, FIRST_PIXELS + t, FIRST_WEIGHTS + j, SPLIT.instruction)
                multiplied += 1
                if beside is not None:
                    for row in range(ROWS * (multiplied - 1) // products, ROWS * multiplied // products):
                        self.parts.row(beside[0], beside[1], row, SPLIT.unit)
