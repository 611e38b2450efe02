"""The kernel of recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.recurrences.body import RecurrenceBody
from brickrt.ops.cpu.recurrences.byte_body import ByteRecurrenceBody
from brickrt.ops.cpu.recurrences.scheme import RecurrenceScheme
from brickrt.ops.operators.recurrence import Recurrence


@dataclass(frozen=True)
class RecurrenceKernel(RecurrenceScheme):
    """All steps of time for the directions and sequences of a box."""

    def emit(self, f: FunctionEmitter) -> None:
        """See `RecurrenceBody`, and for weights of bytes `ByteRecurrenceBody`."""
        (ByteRecurrenceBody if self.op.scaled else RecurrenceBody)(self, f).emit()


@kernel_for(Recurrence)
def _choose(op: Op, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    return RecurrenceKernel
