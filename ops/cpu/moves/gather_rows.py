"""GatherRows: a row after the other, copied in vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I64, Index
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.moves.spans import raw, row_lanes, strips
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.operators.gather_rows import GatherRows


class GatherRowsKernel(Kernel):
    """Copies bits, whatever the elements are."""

    sized: ClassVar[bool] = True

    def emit(self, f: FunctionEmitter) -> None:
        """Position by position."""
        table, positions = self.ins
        *box, (lo, hi) = (f.box(d) for d in range(len(self.out.shape)))
        source, target = f.pointer(1), f.pointer(0)
        adjacent = table.strides[-1] == 1 and self.out.strides[-1] == 1
        lanes, kind = row_lanes(table.dtype, self.isa) if adjacent else 1, raw(table.dtype)
        with f.loops(box) as at:
            place = f.load(f.pointer(2), f.dot(at, positions.strides), positions.dtype)
            row = place if positions.dtype == np.int64 else f.b.sext(place, I64)

            def copy(first: Index, count: Index) -> None:
                mask = None if isinstance(count, int) and count == lanes else f.tail_mask(count, lanes)
                moved = f.load(source, f.dot([row, first], table.strides), kind, lanes, mask)
                f.store(moved, target, f.dot([*at, first], self.out.strides), kind, lanes, mask)

            if lanes == 1:
                with f.loop(lo, hi) as column:
                    copy(column, 1)
            else:
                strips(f, lo, hi, lanes, copy)


@kernel_for(GatherRows)
def choose_gather_rows(op: Op, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """Raises LookupError for tensors in blocks."""
    if any(operand.block > 1 for operand in (*ins, out)):
        raise LookupError("GatherRows: operands in blocks; reorder first")
    return GatherRowsKernel
