"""The input transform of a Winograd convolution: V = Bᵀ d B for the tiles of a group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import I64, Index, zeros
from brickrt.ops.cpu.emit.magnitudes import lanes_before, nothing
from brickrt.ops.cpu.winograd.frame import AxisRange, TileGroup, WinogradFrame, WinogradTile
from brickrt.ops.cpu.winograd.tile_ranges import Suspects, TileRange
from brickrt.ops.cpu.winograd.transforms import input_rows

PLACE = np.dtype(np.int64)
TILES_AHEAD = 2  # between the one in work and the one whose inputs are asked for


class InputTransform:
    """Emits the input transform of a blocked input, and a first look at its tiles (`tile_ranges.py`). `rows` emits it
    along one axis."""

    rows = staticmethod(input_rows)

    def __init__(self, frame: WinogradFrame) -> None:
        self.frame, self.k, self.f, self.suspects = frame, frame.k, frame.f, Suspects(frame)
        self.axes = (frame.k.axes.down, frame.k.axes.across)
        self.depth_stride, *self.strides = frame.strides(frame.k.ins[0].strides)

    def emit(self, group: TileGroup) -> None:
        """All tiles, in the planes of the input that the group is the first to read."""
        f, planes = self.f, self.new_planes(group)
        with self.frame.tiles(group) as tile:
            sides = zip(tile.corner, self.axes, strict=True)
            corner = [f.sub(f.mul(at, axis.stride), axis.pad) for at, axis in sides]
            image = f.mul(tile.n, self.k.ins[0].strides[0])
            with f.b.if_else(self.covered(corner)) as (whole, partial):
                for guarded, branch in ((False, whole), (True, partial)):
                    with branch, f.loop(*planes) as z:
                        self.plane(f.add(image, f.mul(z, self.depth_stride)), corner, guarded, tile, z)
        if not self.k.paired:
            self.clear(group, planes)

    def clear(self, group: TileGroup, planes: tuple[Index, Index]) -> None:
        """Zeros in the places of the last register tile that have no tile. They are multiplied as well, and what other
        kernels left there may be subnormal numbers, with which Intel's processors take a hundred times as long."""
        f, k = self.f, self.k
        last = f.sub(group.blocks, 1)
        used = f.sub(group.count, f.mul(last, k.t))
        with f.loop(*planes) as z, f.loop(0, k.axes.planes) as plane, f.loop(0, k.depth_in) as c:
            start = f.address(
                self.frame.v, f.add(self.place_at(last, z, c), f.mul(plane, k.plane_in)), self.frame.dtype
            )
            with f.loop(used, k.t) as place:
                f.store(zeros(self.frame.kind), start, f.mul(place, k.lanes), self.frame.dtype, k.lanes)

    def plane(self, base: Index, corner: Sequence[Index], guarded: bool, tile: WinogradTile, z: Index) -> None:
        """One tile in plane `z` of the input, which begins at `base`; `guarded` where not all of it may be read."""
        f, k, found = self.f, self.k, TileRange(self.frame)
        with self.residues() as residue, f.loop(0, k.blocks_in) as c:
            start = f.add(base, f.mul(c, k.ins[0].strides[1]))
            first = [f.add(at, r) for at, r in zip(corner, residue, strict=True)]
            self.store(
                self.read(start, first, guarded), tile, z, f.add(f.mul(self.frame.residue(residue), k.blocks_in), c)
            )
            self.look(found, start, first, guarded, lanes_before(f, k.lanes, c, k.ins[0].shape[1]), residue)
        self.suspects.note(self.suspects.at(slot(self.frame, z), tile), found.suspect())

    def look(
        self,
        found: TileRange,
        base: Index,
        corner: Sequence[Index],
        guarded: bool,
        kept: ir.Value,
        residue: tuple[Index, Index],
    ) -> None:
        """A first look at a block of channels, of which lanes are `kept`."""
        f = self.f

        def load(row: Index, column: int) -> ir.Value:
            return self.input(base, corner, (row, column), guarded)

        sampled = kept
        if self.k.axes.residues > 1:  # an output reads less of other residues than of the first
            of_first = f.b.icmp_signed("==", f.value(self.frame.residue(residue)), I64(0))
            sampled = f.b.select(of_first, kept, nothing(self.k.lanes))
        if guarded and any(axis.extent < axis.dilation for axis in self.axes):  # then outputs may read padding alone
            sampled = nothing(self.k.lanes)
        found.look(load, kept, sampled)

    def input(self, base: Index, corner: Sequence[Index], at: tuple[Index, Index], guarded: bool) -> ir.Value:
        """A vector of a tile by row and column, or the nearest that may be read."""
        f = self.f
        place = [self.readable(side, corner[side], n, guarded) for side, n in enumerate(at)]
        return f.load(self.frame.x, f.add(base, f.dot(place, self.strides)), self.frame.input_type, self.k.lanes)

    def readable(self, side: int, first: Index, n: Index, guarded: bool) -> Index:
        """The n-th input of a tile down or across, from `first` on. Where it may not be read, the nearest one that may
        and that is as far from it as taps are: an output that reads padding reads this one, too."""
        f, span = self.f, self.frame.plane[side]
        axis = span.axis
        if guarded and axis.dilation > 1:
            before, after = f.sub(span.first, first), f.sub(f.sub(span.last, 1), first)
            least = f.div(f.add(before, axis.dilation - 1), axis.dilation)
            n = f.maximum(least, f.minimum(n, f.div(after, axis.dilation)))
        at = f.add(first, f.mul(n, axis.step))
        return self.clamped(at, span)[0] if guarded else at

    @contextmanager
    def residues(self) -> Iterator[tuple[Index, Index]]:
        """Loops over the residues of the strides, down and across."""
        down, across = (axis.residues for axis in self.axes)
        if down == across == 1:
            yield 0, 0
            return
        with self.f.loop(0, down) as y, self.f.loop(0, across) as x:
            yield y, x

    def new_planes(self, group: TileGroup) -> tuple[Index, Index]:
        """Inputs of the swept axis: what the group's outputs read, without what those before them in the box read."""
        f, frame = self.f, self.frame
        span, axis = frame.swept, frame.swept.axis
        if axis.dim is None:
            return 0, 1
        stop = f.minimum(axis.extent, frame.input_end(axis, group.hi))
        start = f.maximum(0, f.sub(f.mul(group.lo, axis.stride), axis.pad))
        inner = f.b.icmp_signed(">", f.value(group.lo), f.value(span.lo))
        seen = f.minimum(axis.extent, frame.input_end(axis, group.lo))
        return f.b.select(inner, f.value(f.maximum(start, seen)), f.value(start)), stop

    def covered(self, corner: Sequence[Index]) -> ir.Value:
        """Whether all n×n inputs of a tile, of all residues, are read by the box and on the tensor."""
        f, ok = self.f, ir.Constant(ir.IntType(1), 1)
        for at, span in zip(corner, self.frame.plane, strict=True):
            end = f.add(at, (span.axis.n - 1) * span.axis.step + span.axis.residues)
            ok = f.b.and_(ok, f.b.icmp_signed(">=", f.value(at), f.value(span.first)))
            ok = f.b.and_(ok, f.b.icmp_signed("<=", f.value(end), f.value(span.last)))
        return ok

    def read(self, base: Index, corner: Sequence[Index], guarded: bool) -> list[list[ir.Value]]:
        """The n×n vectors of a tile of a channel block that begins at `base`."""
        return self.guarded(base, corner) if guarded else self.direct(base, corner)

    def direct(self, base: Index, corner: Sequence[Index]) -> list[list[ir.Value]]:
        """The n×n vectors of a tile that may all be read. Those of a later tile are brought to L2 in the meantime."""
        f, k, (down, across), dtype = self.f, self.k, self.axes, self.frame.input_type
        start = f.address(self.frame.x, f.add(base, f.dot(corner, self.strides)), dtype)
        sy, sx = (stride * axis.step for stride, axis in zip(self.strides, self.axes, strict=True))

        rows = [f.address(start, r * sy, dtype) for r in range(down.n)]
        ahead = across.after(TILES_AHEAD) * across.stride * self.strides[1]
        for row in rows:
            for c in range(across.n - across.m, across.n):  # tiles between have the others
                f.prefetch(row, f.add(ahead, c * sx), dtype, near=False)
        return [[f.load(row, c * sx, dtype, k.lanes) for c in range(across.n)] for row in rows]

    def guarded(self, base: Index, corner: Sequence[Index]) -> list[list[ir.Value]]:
        """Zero where an input is not read by the box: on padding, and beyond what the box needs."""
        f, zero = self.f, self.unread()
        sides = zip(corner, self.frame.plane, strict=True)
        rows, columns = (
            [self.clamped(f.add(at, i * span.axis.step), span) for i in range(span.axis.n)] for at, span in sides
        )

        def pixel(y: Index, y_ok: ir.Value, x: Index, x_ok: ir.Value) -> ir.Value:
            at = f.add(base, f.dot((y, x), self.strides))
            value = f.load(self.frame.x, at, self.frame.input_type, self.k.lanes)
            return f.b.select(f.b.and_(y_ok, x_ok), value, zero)

        return [[pixel(*row, *column) for column in columns] for row in rows]

    def unread(self) -> ir.Value:
        """What stands for a vector of inputs that is not read."""
        return zeros(self.frame.kind)

    def clamped(self, at: Index, span: AxisRange) -> tuple[Index, ir.Value]:
        """The nearest index that may be read, and whether it is `at` itself."""
        f = self.f
        inside = f.maximum(span.first, f.minimum(at, f.sub(span.last, 1)))
        return inside, f.b.icmp_signed("==", f.value(inside), f.value(at))

    def store(self, d: list[list[ir.Value]], tile: WinogradTile, z: Index, c: Index) -> None:
        """Bᵀ d B into vector `c` of V; each row is stored before the next is computed, which spills less."""
        f, k, (down, across) = self.f, self.k, self.axes
        columns = [self.rows(f, [row[x] for row in d], down) for x in range(across.n)]
        start = f.address(self.frame.v, self.vector_at(tile, z, c), self.frame.dtype)
        for r in range(down.n):
            for x, value in enumerate(self.rows(f, [column[r] for column in columns], across)):
                element = f.b.bitcast(value, self.frame.kind)
                f.store(element, start, (r * across.n + x) * k.plane_in, self.frame.dtype, k.lanes)

    def vector_at(self, tile: WinogradTile, z: Index, c: Index) -> Index:
        """Where vector `c` of a tile's first plane lies in V."""
        f, k = self.f, self.k
        return f.add(self.place_at(tile.block, z, c), f.mul(tile.place, k.lanes))

    def place_at(self, block: Index, z: Index, c: Index) -> Index:
        """Where vector `c` of the first tile of a register tile lies in V."""
        f, k = self.f, self.k
        row = f.add(f.mul(slot(self.frame, z), self.frame.plane_tiles), block)
        return f.mul(f.add(f.mul(row, k.depth_in), c), k.t * k.lanes)


class NextInputs:
    """Asks for what is transformed after a group of tiles: in the time of its products, which read little from memory.
    That is the next group, or, where an axis is swept, the same tiles of the next plane."""

    def __init__(self, frame: WinogradFrame) -> None:
        self.frame, self.k, self.f = frame, frame.k, frame.f
        self.asks = frame.k.axes.residues == 1 and not frame.k.gathers
        self.strides = frame.strides(frame.k.ins[0].strides)
        self.starts = frame.f.local(I64, count=frame.k.most_tiles) if self.asks else None

    def find(self, group: TileGroup) -> Index:
        """How many tiles there are; their first inputs are kept."""
        if not self.asks:
            return 0
        f, frame, span = self.f, self.frame, self.frame.swept
        if span.axis.dim is None:
            first = f.add(group.first, self.k.group)
            count = f.maximum(0, f.minimum(self.k.group, f.sub(frame.total, first)))
            self.keep(first, count)
            return count
        with f.when(f.b.icmp_signed("==", f.value(group.lo), f.value(span.lo))):
            self.keep(group.first, group.count)
        plane = f.value(frame.input_end(span.axis, group.hi))
        goes_on = f.b.icmp_signed("<", f.value(group.hi), f.value(span.hi))
        reads = f.b.icmp_signed("<", plane, f.value(span.axis.extent))
        return frame.choose(f.b.and_(goes_on, reads), group.count, 0)

    def keep(self, first: Index, count: Index) -> None:
        """Notes where the tiles from number `first` on begin, in the first plane."""
        f, frame, sides = self.f, self.frame, self.k.axes[1:]
        with f.loop(0, count) as place:
            tile = frame.tile(f.value(f.add(first, place)), 0, 0)
            corner = [f.sub(f.mul(at, axis.stride), axis.pad) for at, axis in zip(tile.corner, sides, strict=True)]
            at = f.add(f.mul(tile.n, self.k.ins[0].strides[0]), f.dot(corner, self.strides[1:]))
            f.store(f.value(at), self.starts, place, PLACE)

    def ask(self, group: TileGroup, count: Index, point: Index) -> None:
        """Asks for one input of each tile: that with the number of a point. Tiles before have read the first ones."""
        if not self.asks:
            return
        f, frame, (swept, down, across) = self.f, self.frame, self.k.axes
        y, x = f.value(f.div(point, across.n)), f.value(f.rem(point, across.n))
        of_last = [f.b.icmp_signed(">=", at, I64(axis.n - axis.m)) for at, axis in ((y, down), (x, across))]
        plane = 0 if swept.dim is None else frame.input_end(swept, group.hi)
        with f.when(f.b.and_(*of_last)):
            at = f.dot((plane, f.mul(y, down.step), f.mul(x, across.step)), self.strides)
            with f.loop(0, count) as place:
                start = f.add(f.load(self.starts, place, PLACE), at)
                with f.loop(0, self.k.blocks_in) as c:
                    block = f.mul(c, self.k.ins[0].strides[1])
                    f.prefetch(frame.x, f.add(start, block), frame.input_type, near=False)


def slot(frame: WinogradFrame, z: Index) -> Index:
    """Where a plane of the input lies in V, a ring of planes."""
    return z if frame.k.ring == frame.k.axes.swept.extent else frame.f.rem(z, frame.k.ring)
