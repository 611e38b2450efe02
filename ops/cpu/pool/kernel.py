"""Pool: max, average and Lp windows over 1 to 3 spatial dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.moves.spans import stored_ranges
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.pool.blocked_rows import BlockedRow
from brickrt.ops.cpu.pool.plain_rows import PlainRow
from brickrt.ops.cpu.pool.row import PoolRow
from brickrt.ops.operators.pool import Pool
from brickrt.ops.types import Boxes

ROWS = np.array([1, 2, 4, 8, 16])  # lengths of rows that have code: it is good for longer ones too


class PoolKernel(Kernel):
    """One row of output pixels at a time. Padding is never read.

    `shape_class` is the greatest of `ROWS` that is no longer than blocked rows are.
    """

    effort = 2
    sized = True

    @classmethod
    def classify(
        cls, op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes, isa: Isa
    ) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """Blocked boxes by the length of their rows."""
        if out.block == 1:
            return super().classify(op, ins, out, boxes, isa)
        kinds = np.maximum(np.searchsorted(ROWS, boxes.extents[:, -1], side="right") - 1, 0)
        lengths, index = np.unique(ROWS[kinds], return_inverse=True)
        return index.reshape(-1), [(length,) for length in lengths.tolist()]

    def emit(self, f: FunctionEmitter) -> None:
        """Row by row."""
        assert isinstance(self.op, Pool)
        length = self.shape_class[0] if self.shape_class else self.out.shape[-1]
        kind: type[PoolRow] = BlockedRow if self.out.block > 1 else PlainRow
        ranges = stored_ranges(f, self.out)
        src, dst = f.pointer(1), f.pointer(0)
        with f.loops(ranges[:-1]) as at:
            row = kind.at(f, self.op, self.ins[0], self.out, self.isa, length, (src, dst), at)
            row.emit(*ranges[-1])


@kernel_for(Pool)
def choose_pool(op: Pool, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """Raises LookupError where layouts differ, and for averages and norms of booleans."""
    if ins[0].block != out.block:
        raise LookupError("Pool: the operands' layouts differ; reorder first")
    if out.dtype.kind == "b" and op.kind != "max":
        raise LookupError(f"Pool: {op.kind} of booleans is not defined")
    return PoolKernel
