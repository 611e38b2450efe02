"""Interp: separable weighted sums; the taps of an axis are tables in the kernel's module."""

from __future__ import annotations

from collections.abc import Sequence

from brickrt.ops.cpu.elementwise.interp_sums import Sums
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.moves.spans import stored_ranges, strips
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.operators.interp import Interp


class InterpKernel(Kernel):
    """Blocked: a vector holds the channels of a pixel. Plain: neighbours along the innermost axis."""

    def emit(self, f: FunctionEmitter) -> None:
        """One vector of outputs at a time."""
        assert isinstance(self.op, Interp)
        sums = Sums.of(f, self.op, self.ins[0], self.out)
        ranges = stored_ranges(f, self.out)
        if self.out.block > 1 or not ranges:
            with f.loops(ranges) as at:
                sums.emit(at, self.out.block)
            return
        lanes = self.isa.lanes if self.out.strides[-1] == 1 and self.out.dtype.itemsize >= 4 else 1
        with f.loops(ranges[:-1]) as at:
            strips(f, *ranges[-1], lanes, lambda x, count: sums.emit_row([*at, x], lanes, count))


@kernel_for(Interp)
def choose_interp(op: Interp, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """Raises LookupError where layouts differ or channels in blocks would be interpolated."""
    if ins[0].block != out.block:
        raise LookupError("Interp: the operands' layouts differ; reorder first")
    if out.block > 1 and op.taps[1] is not None:
        raise LookupError("Interp: axis 1 of blocked tensors cannot have taps; reorder to plain first")
    return InterpKernel
