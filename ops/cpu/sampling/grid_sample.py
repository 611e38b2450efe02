"""GridSample: LANES points at a time, whose pixels and weights are noted first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, Index, fill, vector
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.moves.spans import stored_ranges
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.sampling.channels_last import FLOAT32, LANES
from brickrt.ops.cpu.sampling.point_taps import FLOATS, PointTaps
from brickrt.ops.cpu.sampling.tap_table import TapTable, adjacent_coordinates
from brickrt.ops.operators.sampling.grid_sample import TAPS, GridSample

MOST_HELD_TAPS = 8  # of a point, whose places and weights registers hold


class GridSampleKernel(Kernel):
    """Plain: a vector holds neighbouring points of a channel, whose pixels are collected one by one. Blocked: it holds
    the channels of a point."""

    op: GridSample

    sized: ClassVar[bool] = True
    effort: ClassVar[int] = 2

    def emit(self, f: FunctionEmitter) -> None:
        """Row by row of points."""
        images, channels, *rows, points = stored_ranges(f, self.out)
        body = _Body(self, f, channels)
        with f.loop(*images) as n, f.loops(rows) as at, f.loop(*points, LANES) as x:
            body.emit([n, *at], x, f.sub(points[1], x))


@kernel_for(GridSample)
def choose_grid_sample(op: GridSample, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """Raises LookupError where layouts differ, and for points in blocks."""
    if ins[0].block != out.block or ins[1].block > 1:
        raise LookupError("GridSample: the operands' layouts differ; reorder first")
    return GridSampleKernel


class _Body:
    """Emits LANES neighbouring points, for a range of channels or of blocks of them."""

    def __init__(self, k: GridSampleKernel, f: FunctionEmitter, channels: tuple[Index, Index]) -> None:
        self.k, self.f, self.channels = k, f, channels
        self.x, self.grid = k.ins
        op, extents = k.op, self.x.shape[2:]
        self.taps = [
            PointTaps(f, op.mode, op.padding, op.align, f.b.sitofp(f.value(extent), FLOAT)) for extent in extents
        ]
        self.table = TapTable(f, TAPS[op.mode] ** len(extents))

    def emit(self, at: Sequence[Index], x: Index, left: Index) -> None:
        """The points from `x` on of the row `at` an image and an index, of which so many are left."""
        coordinates = reversed(self._coordinates(at, x, left))
        found = [axis.taps(point) for axis, point in zip(self.taps, coordinates, strict=True)]
        self.table.fill(found, self.x.strides[2:])
        (self._blocked if self.k.out.block > 1 else self._plain)(at, x, left)

    def _coordinates(self, at: Sequence[Index], x: Index, left: Index) -> list[ir.Value]:
        f, axes, (*_, step, each) = self.f, len(self.taps), self.grid.strides
        base, first = f.pointer(2), f.dot([*at, x, 0], self.grid.strides)
        if each == 1 and step == axes:
            return adjacent_coordinates(f, base, first, left, axes)
        last = f.sub(left, 1)
        lanes = [f.add(first, f.mul(f.minimum(last, lane), step)) for lane in range(LANES)]
        return [
            f.collect(base, [f.add(lane, f.mul(each, axis)) for lane in lanes], FLOAT32, LANES) for axis in range(axes)
        ]

    def _plain(self, at: Sequence[Index], x: Index, left: Index) -> None:
        """Channel by channel, each lane at its own pixels. Lane by lane: the machine's own gathers are many times
        slower on processors patched against their leaks."""
        f, table, (n, *row) = self.f, self.table, at
        source, mask = f.pointer(1), f.tail_mask(left, LANES)
        with f.loop(*self.channels) as c:
            base = f.dot([n, c], self.x.strides[:2])
            total = f.variable(fill(FLOATS, 0.0))
            with f.loop(0, table.choices) as choice:
                offsets = [f.add(base, table.offset(choice, lane)) for lane in range(LANES)]
                pixels = f.collect(source, offsets, FLOAT32, LANES)
                f.change(total, f.fma(table.weights(choice), pixels, f.read(total)))
            place = f.dot([n, c, *row, x], self.k.out.strides)
            self._store(f.read(total), place, mask, left)

    def _store(self, value: ir.Value, place: Index, mask: ir.Value, left: Index) -> None:
        f, step = self.f, self.k.out.strides[-1]
        if step == 1:
            f.store(value, f.pointer(0), place, FLOAT32, LANES, mask)
            return
        with f.loop(0, f.minimum(left, LANES)) as lane:
            one = f.b.extract_element(value, f.value(lane))
            f.store(one, f.pointer(0), f.add(place, f.mul(lane, step)), FLOAT32)

    def _blocked(self, at: Sequence[Index], x: Index, left: Index) -> None:
        """Point by point, and block by block of channels."""
        f, (n, *row), block = self.f, at, self.k.out.block
        source, target = f.pointer(1), f.pointer(0)
        with f.loop(0, f.minimum(left, LANES)) as lane:
            taps = self._held_taps(lane, block)
            with f.loop(*self.channels) as c:
                base = f.dot([n, c], self.x.strides[:2])
                total = self._sum(source, base, lane, taps, block)
                place = f.dot([n, c, *row, f.add(x, lane)], self.k.out.strides)
                f.store(total, target, place, FLOAT32, block)

    def _held_taps(self, lane: Index, block: int) -> list[tuple[ir.Value, ir.Value]]:
        """Where the pixels of a point are, and their weights in all lanes; none where these are too many."""
        f, table = self.f, self.table
        choices = range(table.choices if table.choices <= MOST_HELD_TAPS else 0)
        return [(table.offset(k, lane), f.splat(table.weight(k, lane), block)) for k in choices]

    def _sum(
        self, source: ir.Value, base: Index, lane: Index, taps: Sequence[tuple[ir.Value, ir.Value]], block: int
    ) -> ir.Value:
        """The channels of a block at a point."""
        f, table, nothing = self.f, self.table, fill(vector(FLOAT, block), 0.0)
        if taps:
            total = nothing
            for offset, weight in taps:
                total = f.fma(weight, f.load(source, f.add(base, offset), FLOAT32, block), total)
            return total
        sums = f.variable(nothing)
        with f.loop(0, table.choices) as choice:
            pixel = f.load(source, f.add(base, table.offset(choice, lane)), FLOAT32, block)
            f.change(sums, f.fma(f.splat(table.weight(choice, lane), block), pixel, f.read(sums)))
        return f.read(sums)
