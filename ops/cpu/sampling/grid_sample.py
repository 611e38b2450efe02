"""GridSample: LANES points at a time, whose pixels and weights are noted first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, Index
from brickrt.ops.cpu.host_loops import LANES
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.moves.spans import stored_ranges
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.sampling.channels_last import FLOAT32
from brickrt.ops.cpu.sampling.point_reader import PointReader, ReadChannels, ReadPoints
from brickrt.ops.cpu.sampling.point_taps import PointTaps
from brickrt.ops.cpu.sampling.tap_table import TapTable, adjacent_coordinates
from brickrt.ops.operators.sampling.grid_sample import TAPS, GridSample


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
        self.reader = PointReader(f, self.x, k.out, TapTable(f, TAPS[op.mode] ** len(extents)))

    def emit(self, at: Sequence[Index], x: Index, left: Index) -> None:
        """The points from `x` on of the row `at` an image and an index, of which so many are left."""
        coordinates = reversed(self._coordinates(at, x, left))
        found = [axis.taps(point) for axis, point in zip(self.taps, coordinates, strict=True)]
        self.reader.table.fill(found, self.x.strides[2:])
        n, *row = at
        self.reader.emit(ReadPoints(n, row, x, left), ReadChannels(*self.channels, self.k.out.block))

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
