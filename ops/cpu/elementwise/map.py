"""Elementwise kernels: loops over leading dimensions around one long vector loop over the trailing ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from llvmlite import ir

from brickrt.ops.base import Op
from brickrt.ops.byte_functions import byte_table, is_byte_function
from brickrt.ops.cpu.arithmetic.expressions import effort, emit_expr, unroll_of
from brickrt.ops.cpu.elementwise.byte_lookup import BYTE, byte_lookup
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.moves.index_tables import LookUps
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.operands.operand_access import Access, access, operands_in_memory, pack_constant
from brickrt.ops.cpu.operands.rows import RowShape, joinable, row_classes
from brickrt.ops.expr import Apply, Arg, distinct, used_operands
from brickrt.ops.operators.map import Map
from brickrt.ops.types import Boxes

LOOK_UP = "look_up"
Compute = Callable[[list[ir.Value | None]], ir.Value]


@dataclass(frozen=True)
class MapKernel(Kernel):
    """`shape_class` is (first,): dimensions from `first` on are walked as one row (`operands/rows.py`)."""

    op: Map

    sized: ClassVar[bool] = True

    @classmethod
    def classify(
        cls, op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes, isa: Isa
    ) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """Boxes by the dimension that their rows begin at."""
        return row_classes(boxes, out, joinable(out, [access(o, out) for o in ins]))

    def opens_packed(self, i: int) -> bool:
        """See `Kernel`: where elements lie follows from the shape."""
        return True

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        """As the output's vectors read it."""
        return pack_constant(array, self.out)

    @cached_property
    def row(self) -> RowShape:
        """The rows that boxes of this class are walked in."""
        return RowShape.of(self.out, self.shape_class, self.isa)

    @cached_property
    def accesses(self) -> dict[int, Access]:
        """How the output's vectors read each operand that the expression uses."""
        lie = operands_in_memory(self.ins, self.packed, self.out)
        return {k: access(lie[k], self.out, self.row.dim) for k in used_operands(self.op.expr)}

    def emit(self, f: FunctionEmitter) -> None:
        """Row by row."""
        target, sources, compute = f.pointer(0), {k: f.pointer(1 + k) for k in self.accesses}, self.computation(f)
        with self.row.walk(f) as (index, length):
            _RowLoop(self, f, target, sources, index, compute).emit(length)

    @cached_property
    def looks_up(self) -> bool:
        """Whether results are looked up in a table of 256 bytes."""
        expr = self.op.expr
        return is_byte_function(expr) or (isinstance(expr, Apply) and expr.fn == LOOK_UP)

    def opened_op(self, take: Callable[[int], Any]) -> tuple[Op, tuple[Any, ...]]:
        """See `Kernel`: code that looks results up does not know what the expression is."""
        if not self.looks_up:
            return self.op, self.decisions()
        expr = self.op.expr
        (operand,) = {e for e in distinct(expr) if isinstance(e, Arg)}
        return replace(self.op, expr=Apply(expr.dtype, LOOK_UP, (operand,))), self.decisions()

    def look_ups(self) -> Sequence[np.ndarray]:
        """See `Kernel`."""
        return [byte_table(self.op.expr)] if self.looks_up else []

    @property
    def unroll(self) -> int:
        """Vectors per loop step."""
        return 1 if self.looks_up else unroll_of(effort(self.op.expr))

    def computation(self, f: FunctionEmitter) -> Compute:
        """What computes a vector of the output of those of the operands, None for those that are not used."""
        expr, lanes = self.op.expr, self.row.lanes
        if not self.looks_up:
            return lambda operands: emit_expr(f, expr, operands, lanes)
        (operand,) = used_operands(expr)
        found = byte_lookup(f, LookUps(f).following(256, BYTE), self.isa, lanes)
        return lambda operands: found(operands[operand])


class _RowLoop:
    """The code of one row, whose first element is at `index` of the output."""

    def __init__(
        self,
        kernel: MapKernel,
        f: FunctionEmitter,
        target: ir.Value,
        sources: dict[int, ir.Value],
        index: Sequence[Index],
        compute: Compute,
    ) -> None:
        self.compute = compute
        self.kernel, self.f, self.row = kernel, f, kernel.row
        self.target, self.sources, self.channel = target, sources, self.row.channel(index)
        self.out = access(kernel.out, kernel.out, self.row.dim)
        self.out_start = self.out.offset(f, index)
        self.starts = {k: a.offset(f, index) for k, a in kernel.accesses.items()}
        # Loads that no step of the row changes; a store might alias them, so LLVM would repeat them.
        self.fixed = {k: self._load(k, 0) for k, a in kernel.accesses.items() if self.row.is_fixed(a)}

    def emit(self, length: Index) -> None:
        f, row = self.f, self.row
        wide = row.step * self.kernel.unroll
        with f.loop(0, f.sub(length, wide - 1), wide) as i:
            self._vectors([f.add(i, k) for k in range(0, wide, row.step)])
        done = f.sub(length, f.rem(length, wide))
        if wide > row.step:
            with f.loop(done, f.sub(length, row.step - 1), row.step) as i:
                self._vectors([i])
            done = f.sub(length, f.rem(length, row.step))
        if row.step > 1:
            left = f.value(f.sub(length, done))
            with f.when(f.b.icmp_signed(">", left, f.value(0))):
                self._vectors([done], f.tail_mask(left, row.lanes))

    def _vectors(self, places: Sequence[Index], mask: ir.Value | None = None) -> None:
        """Outputs `places` steps into the row; all are computed before any is stored."""
        values = [self._value(i, mask) for i in places]
        for i, value in zip(places, values, strict=True):
            at = self.row.moved(self.f, self.out, self.out_start, i)
            self.f.store(value, self.target, at, self.kernel.out.dtype, self.row.lanes, mask)

    def _value(self, i: Index, mask: ir.Value | None) -> ir.Value:
        operands = {k: self.fixed[k] if k in self.fixed else self._load(k, i, mask) for k in self.starts}
        dense = [operands.get(k) for k in range(len(self.kernel.ins))]
        return self.compute(dense)

    def _load(self, k: int, i: Index, mask: ir.Value | None = None) -> ir.Value:
        how = self.kernel.accesses[k]
        at = self.row.moved(self.f, how, self.starts[k], i)
        return how.load(self.f, self.sources[k], at, self.row.lanes, mask, self.channel)


@kernel_for(Map)
def choose(op: Op, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """The one kernel for elementwise expressions."""
    return MapKernel
