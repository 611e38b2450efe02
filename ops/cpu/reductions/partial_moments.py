"""Sums and squared deviations of segments of rows: a segment is swept twice, the second time out of the nearest cache.

Lanes are channels of a blocked tensor, elements of the segment of a plain one. There are several sums that do not wait
for one another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from llvmlite import ir

from brickrt.ops.base import Op
from brickrt.ops.cpu.arithmetic.combine import Combine
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index, register_type
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.operands.epilogue import offset_of
from brickrt.ops.cpu.operands.operand_access import Access, access
from brickrt.ops.operators.partial_moments import PartialMoments

PARTIALS = 8  # accumulators: enough to hide the latency of the additions

Step = Callable[[ir.Value, ir.Value], ir.Value]  # the total and a vector → the new total


@dataclass(frozen=True)
class PartialMomentsKernel(Kernel):
    """Two adjacent outputs per segment, of which a box may have one alone."""

    op: PartialMoments

    @property
    def blocked(self) -> bool:
        """Whether vectors hold channels of one pixel."""
        return self.ins[0].block > 1

    @cached_property
    def access(self) -> Access:
        """How vectors read the input."""
        return access(self.ins[0], self.ins[0])

    @property
    def combine(self) -> Combine:
        """How vectors and lanes are added."""
        return Combine("sum", self.out.dtype)

    def emit(self, f: FunctionEmitter) -> None:
        """Segment by segment."""
        target, source, results = f.pointer(0), f.pointer(1), self.op.results
        *outer, (lo, hi) = (f.box(d) for d in range(len(self.out.shape)))
        if self.blocked:
            outer[1] = tuple(f.div(f.add(bound, k), self.lanes) for bound, k in zip(outer[1], (0, self.lanes - 1)))
        segments = f.div(lo, results), f.div(f.add(hi, results - 1), results)
        with f.when(f.b.icmp_signed("<", lo, hi)), f.loops([*outer, segments]) as (*at, segment):
            index = [f.mul(i, self.lanes) if self.blocked and d == 1 else i for d, i in enumerate(at)]
            for k, value in enumerate(self._moments(f, source, index, segment)):
                to = f.add(f.mul(segment, results), k)
                inside = f.b.and_(f.b.icmp_signed("<=", lo, to), f.b.icmp_signed("<", to, hi))
                with f.when(inside):
                    offset = offset_of(f, self.out, [*index, to])
                    f.store(value, target, offset, self.out.dtype, self.lanes if self.blocked else 1)

    def _moments(
        self, f: FunctionEmitter, source: ir.Value, index: Sequence[Index], segment: Index
    ) -> tuple[ir.Value, ir.Value]:
        """The sum of a segment, and that of its squared deviations."""
        x = self.ins[0]
        start = f.mul(segment, self.op.length)
        count = f.minimum(f.sub(x.shape[-1], start), self.op.length)
        first = self.access.offset(f, [*index, start])
        total = self._sum(f, source, first, count, f.b.fadd, lambda value: value)
        number = f.b.sitofp(f.value(count), register_type(self.out.dtype))
        mean = f.b.fdiv(total, f.splat(number, self.lanes) if self.blocked else number)
        means = mean if self.blocked else f.splat(mean, self.lanes)
        squares = self._sum(
            f, source, first, count, lambda sums, d: f.fma(d, d, sums), lambda value: f.b.fsub(value, means)
        )
        return total, squares

    def _sum(
        self,
        f: FunctionEmitter,
        source: ir.Value,
        first: Index,
        count: Index,
        step: Step,
        term: Callable[[ir.Value], ir.Value],
    ) -> ir.Value:
        """The terms of `count` elements from the offset `first` on, taken together by `step`; lanes that are no
        elements are 0."""
        zero = self.combine.identity(self.lanes)
        totals = [f.local(zero.type, zero) for _ in range(PARTIALS)]
        wide = 1 if self.blocked else self.lanes
        stride = self.access.strides[-1] * wide
        whole = f.div(count, wide)

        def add(total: ir.Value, i: Index, mask: ir.Value | None = None) -> None:
            value = term(self.access.load(f, source, f.add(first, f.mul(i, stride)), self.lanes, mask))
            value = value if mask is None else f.b.select(mask, value, zero)
            f.set(total, step(f.get(total, zero.type), value))

        with f.loop(0, f.sub(whole, PARTIALS - 1), PARTIALS) as i:
            for k, total in enumerate(totals):
                add(total, f.add(i, k))
        with f.loop(f.sub(whole, f.rem(whole, PARTIALS)), whole) as i:
            add(totals[0], i)
        if not self.blocked:
            left = f.value(f.rem(count, wide))
            with f.when(f.b.icmp_signed(">", left, f.value(0))):
                add(totals[-1], whole, f.tail_mask(left, self.lanes))
        vector = self.combine.all(f, [f.get(total, zero.type) for total in totals])
        return vector if self.blocked else self.combine.lanes(f, vector)


@kernel_for(PartialMoments)
def choose(op: Op, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """Raises LookupError for a layout that is not the same on both sides."""
    if ins[0].block != out.block or out.block not in (1, isa.lanes):
        raise LookupError("Moments are written as the tensor lies")
    return PartialMomentsKernel
