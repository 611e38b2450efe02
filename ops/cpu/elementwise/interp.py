"""Interp: separable weighted sums; the taps of an axis are tables behind the kernel's sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.elementwise.interp_sums import Sums, work_dtype
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.moves.spans import stored_ranges, strips
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.operators.sampling.interp import AxisTaps, Interp


class InterpKernel(Kernel):
    """Blocked: a vector holds the channels of a pixel. Plain: neighbours along the innermost axis. `decided` is how
    many taps the outputs of each axis have, None for an axis that is kept."""

    sized: ClassVar[bool] = True

    def decisions(self) -> tuple[int | None, ...]:
        """See `Kernel`."""
        return self.decided or tuple(taps and taps.count for taps in self.taps)

    def opened_op(self, take: Callable[[int], Any]) -> tuple[Op, tuple[Any, ...]]:
        """Its code needs none of the tables."""
        return Interp((None,) * len(self.taps)), self.decisions()

    def look_ups(self) -> Sequence[np.ndarray]:
        """Indices and weights [taps][outputs]: what the same tap of neighbouring outputs needs lies side by side."""
        work = work_dtype(self.out.dtype)
        tables = [(t.index_array.T, t.weight_array.T.astype(work)) for t in self.taps if t]
        return [np.ascontiguousarray(table) for pair in tables for table in pair]

    @property
    def taps(self) -> tuple[AxisTaps | None, ...]:
        """Those of the operator."""
        assert isinstance(self.op, Interp)
        return self.op.taps

    def emit(self, f: FunctionEmitter) -> None:
        """One vector of outputs at a time."""
        sums = Sums.of(f, self.decisions(), self.ins[0], self.out)
        ranges = stored_ranges(f, self.out)
        if not ranges:
            sums.emit([], 1)
            return
        if self.out.block > 1:
            with f.loops(ranges[:-1]) as at:
                row = sums.row(at, self.out.block)
                with f.loop(*ranges[-1]) as x:
                    row.emit([*at, x], self.out.block)
            return
        lanes = self.isa.lanes if self.out.strides[-1] == 1 and self.out.dtype.itemsize >= 4 else 1
        with f.loops(ranges[:-1]) as at:
            row = sums.row(at, lanes)
            strips(f, *ranges[-1], lanes, lambda x, count: row.emit_row([*at, x], lanes, count))


@kernel_for(Interp)
def choose_interp(op: Interp, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """Raises LookupError where layouts differ or channels in blocks would be interpolated."""
    if ins[0].block != out.block:
        raise LookupError("Interp: the operands' layouts differ; reorder first")
    if out.block > 1 and op.taps[1] is not None:
        raise LookupError("Interp: axis 1 of blocked tensors cannot have taps; reorder to plain first")
    return InterpKernel
