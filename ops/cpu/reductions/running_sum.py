"""Sums so far: rows are added in order, in vectors of what lies side by side.

Each worker has two rows of its own: the sum of the rows of this block, and that of the blocks before. Their sum is what
is stored. So errors grow with the rows of a block and the number of blocks, not with all rows; and as blocks begin
where the sums do, the bits of a sum do not depend on the box it is in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from llvmlite import ir

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index, register_type, vector, zeros
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.moves.spans import strips
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.operators.reduce import RunningSum
from brickrt.ops.types import is_floating

BLOCK = 32  # rows
ROWS_AT_A_TIME = 4
COLUMNS = 1024  # of the rows that a worker has to itself: they stay in L1
ROW_PITCH = COLUMNS + 64  # elements: processors take what is a multiple of 4 KiB apart for the same place


@dataclass(frozen=True)
class RunningSumKernel(Kernel):
    """All rows from where sums begin to the end of the box; those of the box are stored."""

    op: RunningSum

    sized: ClassVar[bool] = True

    @property
    def width(self) -> int:
        """Elements of a vector register."""
        return max(1, self.isa.lanes * 4 // self.out.dtype.itemsize)

    @property
    def workspace(self) -> int:
        """Two rows."""
        return (ROW_PITCH + COLUMNS) * self.out.dtype.itemsize

    def emit(self, f: FunctionEmitter) -> None:
        """Some columns at a time."""
        *box, (left, right) = (f.box(d) for d in range(len(self.out.shape)))
        rows = box.pop(self.op.axis)
        with f.loops(box) as at, f.loop(left, right, COLUMNS) as start:
            columns = f.minimum(f.sub(right, start), COLUMNS)
            _Columns(self, f, [*at, start], columns).emit(*rows)


@kernel_for(RunningSum)
def _choose(op: Op, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    return RunningSumKernel


class _Columns:
    """Emits the sums of some columns that begin `at` an index of the dimensions which are not added."""

    def __init__(self, k: RunningSumKernel, f: FunctionEmitter, at: Sequence[Index], columns: Index) -> None:
        self.k, self.f, self.at, self.columns, self.dtype = k, f, at, columns, k.out.dtype
        room = f.pointer(1 + len(k.ins) + k.extra_pointers)
        self.block, self.before = room, f.address(room, ROW_PITCH, self.dtype)

    def emit(self, lo: Index, hi: Index) -> None:
        """Rows [lo, hi) of the box, and those that are added first."""
        f, extent, backward = self.f, self.k.out.shape[self.k.op.axis], self.k.op.backward
        self._each(self._clear)
        count = f.sub(extent, lo) if backward else hi
        begins = f.sub(extent, hi) if backward else lo  # the number of the first row that is stored
        with f.loop(0, count, BLOCK) as begin:
            end = f.add(begin, BLOCK)
            whole = f.b.and_(
                f.b.icmp_signed(">=", f.value(begin), f.value(begins)),
                f.b.icmp_signed("<=", f.value(end), f.value(count)),
            )
            with f.b.if_else(whole) as (together, alone):
                with together, f.loop(begin, end, ROWS_AT_A_TIME) as n:
                    self._rows([self._row(f.add(n, k)) for k in range(ROWS_AT_A_TIME)], True)
                with alone, f.loop(begin, f.minimum(end, count)) as n:
                    stored = f.b.icmp_signed(">=", f.value(n), f.value(begins))
                    with f.b.if_else(stored) as (inside, before):
                        with inside:
                            self._rows([self._row(n)], True)
                        with before:
                            self._rows([self._row(n)], False)
            self._each(self._next_block)

    def _row(self, n: Index) -> Index:
        """The row that is added as number `n`."""
        f, k = self.f, self.k
        return f.sub(f.sub(k.out.shape[k.op.axis], 1), n) if k.op.backward else n

    def _each(self, body: Callable[[Index, Index], None]) -> None:
        """Calls `body` with the first column and the number of each vector."""
        strips(self.f, 0, self.columns, self.k.width, body)

    def _clear(self, x: Index, count: Index) -> None:
        nothing = zeros(vector(register_type(self.dtype), self.k.width))
        for place in (self.block, self.before):
            self.f.store(nothing, place, x, self.dtype, self.k.width)

    def _next_block(self, x: Index, count: Index) -> None:
        f, width = self.f, self.k.width
        both = self._plus(f.load(self.before, x, self.dtype, width), f.load(self.block, x, self.dtype, width))
        f.store(both, self.before, x, self.dtype, width)
        f.store(zeros(both.type), self.block, x, self.dtype, width)

    def _rows(self, rows: Sequence[Index], stored: bool) -> None:
        """Adds rows to their block, one after the other, and stores the sums so far."""
        f, k, dtype, axis = self.f, self.k, self.dtype, self.k.op.axis
        places = [[*self.at[:axis], row, *self.at[axis:]] for row in rows]
        sources, targets = (
            [f.address(f.pointer(which), f.dot(place, operand.strides), dtype) for place in places]
            for which, operand in ((1, k.ins[0]), (0, k.out))
        )

        def add(x: Index, count: Index) -> None:
            mask = None if count == k.width else f.tail_mask(count, k.width)
            total, before = (f.load(place, x, dtype, k.width) for place in (self.block, self.before))
            for source, target in zip(sources, targets, strict=True):
                total = self._plus(total, f.load(source, x, dtype, k.width, mask))
                if stored:
                    f.store(self._plus(before, total), target, x, dtype, k.width, mask)
            f.store(total, self.block, x, dtype, k.width)

        self._each(add)

    def _plus(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.f.b.fadd(x, y) if is_floating(self.dtype) else self.f.b.add(x, y)
