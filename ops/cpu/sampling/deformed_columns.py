"""DeformedColumns: tap by tap, LANES outputs at a time, whose pixels and weights are noted first."""

from __future__ import annotations

import math
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
from brickrt.ops.cpu.sampling.tap_table import TapTable
from brickrt.ops.operators.sampling.deformed_columns import DeformedColumns


class DeformedColumnsKernel(Kernel):
    """Pieces of channels that share points: one channel of planes, else as many as lie side by side in a block."""

    op: DeformedColumns

    sized: ClassVar[bool] = True
    effort: ClassVar[int] = 2

    @property
    def knows_channels(self) -> bool:
        """How many channels share points decides how they are read."""
        return True

    @property
    def channels(self) -> int:
        """Those of the image."""
        return self.ins[0].shape[1]

    @property
    def groups(self) -> int:
        """Groups of them, which have points of their own."""
        return self.op.groups(self.ins[1].shape)

    @property
    def width(self) -> int:
        """Channels of a piece."""
        return math.gcd(self.channels // self.groups, self.out.block)

    def emit(self, f: FunctionEmitter) -> None:
        """Row by row of outputs."""
        images, channels, *rows, points = stored_ranges(f, self.out)
        body = _TapsOfOutputs(self, f, channels)
        with f.loop(*images) as n, f.loops(rows) as at, f.loop(*points, LANES) as x:
            body.emit(ReadPoints(n, at, x, f.sub(points[1], x)))


@kernel_for(DeformedColumns)
def choose_deformed_columns(op: DeformedColumns, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """Raises LookupError where layouts differ, where blocks are not filled, and for points in blocks."""
    if ins[0].block != out.block or any(other.block > 1 for other in ins[1:]):
        raise LookupError("DeformedColumns: the operands' layouts differ; reorder first")
    if ins[0].shape[1] % out.block:
        raise LookupError("DeformedColumns: channels do not fill their blocks; take planes")
    return DeformedColumnsKernel


class _TapsOfOutputs:
    """Emits a tap of LANES neighbouring outputs, for a range of the output's channels or of blocks of them."""

    def __init__(self, k: DeformedColumnsKernel, f: FunctionEmitter, channels: tuple[Index, Index]) -> None:
        self.k, self.f = k, f
        pieces = k.out.block // k.width
        self.first, self.last = (f.mul(bound, pieces) for bound in channels)
        extents = [f.b.sitofp(f.value(extent), FLOAT) for extent in k.ins[0].shape[2:]]
        self.axes = [PointTaps(f, "linear", "zeros", None, extent) for extent in extents]
        self.reader = PointReader(f, k.ins[0], k.out, TapTable(f, 2 ** len(extents)))

    def emit(self, at: ReadPoints) -> None:
        """Group by group, whose pixels stay in L1 while its taps are read: each group's pieces that lie in the box."""
        k, f = self.k, self.f
        pieces = k.channels // k.width
        each = pieces // k.groups
        with f.loop(0, k.groups) as group, f.loop(0, k.op.taps) as tap:
            before, begin = f.mul(tap, pieces), f.mul(group, each)
            first = f.maximum(f.sub(self.first, before), begin)
            last = f.minimum(f.sub(self.last, before), f.add(begin, each))
            with f.when(f.b.icmp_signed("<", f.value(first), f.value(last))):
                self._fill(f.add(f.mul(group, k.op.taps), tap), at)
                self.reader.emit(at, ReadChannels(first, last, k.width, f.mul(tap, k.channels)))

    def _fill(self, window: Index, at: ReadPoints) -> None:
        """Notes where the outputs' taps of one group lie."""
        f, axes = self.f, len(self.axes)
        coordinates = [self._values(1, f.add(f.mul(window, axes), axis), at) for axis in range(axes)]
        found = [axis.taps(point) for axis, point in zip(self.axes, coordinates, strict=True)]
        factor = self._values(2, window, at) if len(self.k.ins) > 2 else None
        self.reader.table.fill(found, self.k.ins[0].strides[2:], factor)

    def _values(self, i: int, channel: Index, at: ReadPoints) -> ir.Value:
        """A channel of an input for LANES outputs."""
        f, strides = self.f, self.k.ins[i].strides
        base, first = f.pointer(1 + i), f.dot([at.n, channel, *at.row, at.x], strides)
        if strides[-1] == 1:
            return f.load(base, first, FLOAT32, LANES, f.tail_mask(at.left, LANES))
        last = f.sub(at.left, 1)
        lanes = [f.add(first, f.mul(f.minimum(last, lane), strides[-1])) for lane in range(LANES)]
        return f.collect(base, lanes, FLOAT32, LANES)
