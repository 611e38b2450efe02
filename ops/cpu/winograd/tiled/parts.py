"""The parts of V that tile registers multiply, told apart while the products of the plane before are summed: a tile's
product takes as many cycles as it does to split a row or two.

    parts[plane modulo 2][plane of the input][G/T][unit][part][T][32]
"""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.amx.factors import split_pixel
from brickrt.ops.cpu.amx.gather import BYTE
from brickrt.ops.cpu.amx.sizes import ROW_BYTES, ROWS, SPLIT, TILE_BYTES
from brickrt.ops.cpu.emit.llvm_types import I64, Index, zeros
from brickrt.ops.cpu.winograd.frame import TileGroup, WinogradFrame
from brickrt.ops.cpu.winograd.input_transform import slot
from brickrt.ops.cpu.winograd.tiled.scheme import TILE_FLOATS, TiledScheme


class SplitInput:
    """Emits the splitting of a plane's units: whole ones in any place, one after the other, and what is left."""

    def __init__(self, frame: WinogradFrame, kernel: TiledScheme) -> None:
        self.frame, self.f, self.k = frame, frame.f, kernel
        self.start = self.f.address(frame.v, kernel.parts_at, frame.dtype)
        self.whole, self.tail = divmod(kernel.ins[0].shape[1], SPLIT.unit)
        self.done = self.f.local(I64)
        self.plane: Index = 0
        self.first: Index = 0  # plane of the input
        self.live: tuple[Index, Index] = (0, 0)
        self.total: Index = 0

    def begin(self, group: TileGroup, plane: Index) -> None:
        """The units of a plane are to come; none of one past the last."""
        f, frame, axis = self.f, self.frame, self.frame.swept.axis
        planes: Index = 1
        self.first = 0
        if axis.dim is not None:
            self.first = f.maximum(0, f.sub(f.mul(group.lo, axis.stride), axis.pad))
            planes = f.sub(f.minimum(axis.extent, frame.input_end(axis, group.hi)), self.first)
        self.plane = plane
        lo, hi = frame.register_tiles_of(group, plane)
        inside = f.b.icmp_signed("<", f.value(plane), I64(self.k.axes.planes))
        self.live = lo, f.b.select(inside, f.value(f.maximum(lo, hi)), f.value(lo))
        self.total = f.mul(f.maximum(0, planes), f.sub(self.live[1], lo))
        f.set(self.done, I64(0))

    def finish(self) -> None:
        """All that is left."""
        f = self.f
        with f.loop(f.get(self.done, I64), f.mul(self.total, self.whole)) as n:
            number, unit = self.place(n)
            self.unit(number, unit, SPLIT.unit)
        if self.tail:
            with f.loop(0, self.total) as n:
                self.unit(self.tile(n), self.whole, self.tail)

    def some(self) -> ir.Value:
        """Whether a whole unit is left."""
        return self.f.b.icmp_signed("<", self.f.get(self.done, I64), self.f.value(self.f.mul(self.total, self.whole)))

    def next(self) -> tuple[ir.Value, ir.Value]:
        """Where the next whole unit lies in V, and where its parts belong."""
        f = self.f
        n = f.get(self.done, I64)
        f.set(self.done, f.b.add(n, I64(1)))
        number, unit = self.place(n)
        return self.source(number, unit), self.at(self.plane, number, unit)

    def place(self, n: Index) -> tuple[Index, Index]:
        """The register tile of whole unit `n`, and its number there."""
        if self.whole < 2:
            return self.tile(n), 0
        return self.tile(self.f.div(n, self.whole)), self.f.rem(n, self.whole)

    def tile(self, n: Index) -> Index:
        """The number of register tile `n` of those that are split in the planes of the ring."""
        f, (lo, hi) = self.f, self.live
        if self.frame.swept.axis.dim is None:
            return f.add(lo, n)
        each = f.value(f.maximum(1, f.sub(hi, lo)))
        z, g = f.b.udiv(f.value(n), each), f.b.urem(f.value(n), each)
        return self.number(f.add(self.first, z), f.add(lo, g))

    def number(self, z: Index, g: Index) -> Index:
        """The number of a register tile in the planes of the ring."""
        return self.f.add(self.f.mul(slot(self.frame, z), self.frame.plane_tiles), g)

    def source(self, number: Index, unit: Index) -> ir.Value:
        """The address of a unit of a register tile in V."""
        f, k = self.f, self.k
        block = f.add(f.mul(number, k.depth_in), f.mul(unit, SPLIT.unit // k.lanes))
        return f.address(
            self.frame.v, f.add(f.mul(self.plane, k.plane_in), f.mul(block, TILE_FLOATS)), self.frame.dtype
        )

    def at(self, plane: Index, number: Index, unit: Index) -> ir.Value:
        """The address of the parts of a unit of a register tile."""
        f, k = self.f, self.k
        first = f.add(f.mul(f.add(f.mul(f.rem(plane, 2), k.part_tiles), number), k.units), unit)
        return f.address(self.start, f.mul(first, SPLIT.parts * TILE_BYTES), BYTE)

    def unit(self, number: Index, unit: Index, channels: int) -> None:
        """All rows of a unit of so many channels."""
        source, to = self.source(number, unit), self.at(self.plane, number, unit)
        with self.f.loop(0, ROWS) as row:
            self.row(source, to, row, channels)

    def row(self, source: ir.Value, to: ir.Value, row: Index, channels: int) -> None:
        """A row of a unit: a tile's channels."""
        f, k = self.f, self.k
        place = f.address(source, f.mul(row, k.lanes), self.frame.dtype)
        vectors = [self.vector(place, n, channels - n * k.lanes) for n in range(SPLIT.unit // k.lanes)]
        line = f.address(to, f.mul(row, ROW_BYTES), BYTE)
        for part, value in enumerate(split_pixel(f, SPLIT, vectors)):
            f.b.store(value, f.address(line, part * TILE_BYTES, BYTE), align=ROW_BYTES)

    def vector(self, place: ir.Value, block: int, count: int) -> ir.Value:
        """The `count` channels that are there of a tile's block; zeros for others."""
        f, k = self.f, self.k
        if count <= 0:
            return zeros(self.frame.kind)
        value = f.load(place, block * TILE_FLOATS, self.frame.dtype, k.lanes)
        return value if count >= k.lanes else f.b.select(f.tail_mask(count, k.lanes), value, zeros(value.type))
