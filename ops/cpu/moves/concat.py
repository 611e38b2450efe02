"""Concat: per input, the part of the box that it fills."""

from __future__ import annotations

from collections.abc import Sequence

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.moves.move_kernel import MoveKernel
from brickrt.ops.cpu.moves.spans import CopyLoop, StridedMemory, lane_spans, stored_ranges, stored_shape
from brickrt.ops.cpu.moves.square_tiles import copy_spans
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.operators.move import Concat


class ConcatKernel(MoveKernel):
    """Plain or blocked operands, all alike."""

    def emit(self, f: FunctionEmitter) -> None:
        """Input by input."""
        assert isinstance(self.op, Concat)
        axis, start = self.op.axis, 0
        ranges = stored_ranges(f, self.out, self.shape_class)
        for i, operand in enumerate(self.ins):
            extents = stored_shape(operand)
            part = list(ranges)
            part[axis] = within(f, ranges[axis], start, extents[axis])
            axes = zip(part, operand.strides, self.out.strides, extents, strict=True)
            spans = [CopyLoop(*bounds, s, d, size) for bounds, s, d, size in axes]
            target = StridedMemory(f.pointer(0), start * self.out.strides[axis])
            copy_spans(self.mover(f), spans + lane_spans(self.out.block), StridedMemory(f.pointer(i + 1)), target)
            start += extents[axis]


def within(f: FunctionEmitter, bounds: tuple[Index, Index], start: int, extent: int) -> tuple[Index, Index]:
    """The part of `bounds` in [start, start + extent), counted from `start`; empty where lo >= hi."""
    lo, hi = bounds
    return f.maximum(f.sub(lo, start), 0), f.minimum(f.sub(hi, start), extent)


@kernel_for(Concat)
def choose_concat(op: Concat, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """Raises LookupError where layouts differ or inputs would begin inside a block of channels."""
    if any(i.block != out.block for i in ins):
        raise LookupError("Concat: the operands' layouts differ; reorder first")
    if out.block > 1 and op.axis == 1 and any(i.shape[1] % out.block for i in ins[:-1]):
        raise LookupError(
            f"Concat: channels of blocked inputs must be multiples of {out.block}; reorder to plain first"
        )
    return ConcatKernel
