"""Sums and squared deviations of segments of rows: a segment is swept twice, the second time out of the nearest cache,
while the segment after it is fetched.

Lanes are channels of a blocked tensor, elements of the segment of a plain one. There are several sums that do not wait
for one another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from llvmlite import ir

from brickrt.ops.base import Op
from brickrt.ops.cpu.arithmetic.combine import Combine
from brickrt.ops.cpu.arithmetic.functions.vector_math import lanes_of
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import DOUBLE, Index, fill, register_type, vector
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.operands.epilogue import offset_of
from brickrt.ops.cpu.operands.operand_access import Access, access
from brickrt.ops.operators.partial_moments import PartialMoments, element_type

ACCUMULATORS = 8  # enough to hide the latency of the additions

Step = Callable[[ir.Value, ir.Value], ir.Value]  # a total and a vector → the new total


@dataclass(frozen=True)
class PartialMomentsKernel(Kernel):
    """Two adjacent outputs per segment, of which a box may have one alone."""

    op: PartialMoments

    sized: ClassVar[bool] = True

    @property
    def blocked(self) -> bool:
        """Whether vectors hold channels of one pixel."""
        return self.ins[0].block > 1

    @cached_property
    def access(self) -> Access:
        """How vectors read the input."""
        return access(self.ins[0], self.ins[0])

    @property
    def dtype(self) -> np.dtype:
        """The type in which elements are added up."""
        return element_type(self.ins[0].dtype)

    @property
    def combine(self) -> Combine:
        """How vectors and lanes are added."""
        return Combine("sum", self.dtype)

    def emit(self, f: FunctionEmitter) -> None:
        """Segment by segment."""
        target, source, results = f.pointer(0), f.pointer(1), self.op.results
        *outer, (lo, hi) = (f.box(d) for d in range(len(self.out.shape)))
        if self.blocked:
            first, end = outer[1]
            outer[1] = f.div(first, self.lanes), f.div(f.add(end, self.lanes - 1), self.lanes)
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
        """The sum of a segment, and that of its squared deviations. What the mean has lost by rounding, the sum of the
        deviations from it gives back, unless that is infinite."""
        start = f.mul(segment, self.op.length)
        count = f.minimum(f.sub(self.ins[0].shape[-1], start), self.op.length)
        elements = source, self.access.offset(f, [*index, start]), count
        (total,) = self._sums(f, elements, [f.b.fadd])
        number = f.b.sitofp(f.value(count), register_type(self.dtype))
        mean = f.b.fdiv(total, f.splat(number, lanes_of(total)))
        steps = [f.b.fadd, lambda sums, d: f.fma(d, d, sums)]
        rest, squares = self._sums(f, elements, steps, f.splat(mean, self.lanes // lanes_of(mean)))
        total, mean, rest, squares, number = (self._wide(f, v) for v in (total, mean, rest, squares, number))
        number = f.splat(number, lanes_of(total))
        exact = f.fma(number, mean, rest)
        fewer = f.b.fsub(squares, f.b.fdiv(f.b.fmul(rest, rest), number))
        positive = f.math("maxnum", fewer, fill(fewer.type, 0.0))
        return f.b.select(_finite(f, rest), exact, total), f.b.select(_finite(f, fewer), positive, squares)

    def _wide(self, f: FunctionEmitter, value: ir.Value) -> ir.Value:
        return value if self.dtype == self.out.dtype else f.b.fpext(value, vector(DOUBLE, lanes_of(value)))

    def _sums(
        self,
        f: FunctionEmitter,
        elements: tuple[ir.Value, Index, Index],
        steps: Sequence[Step],
        mean: ir.Value | None = None,
    ) -> list[ir.Value]:
        """A total by each step of the elements (those from an offset on: base, offset, number) or of their deviations
        from a mean; lanes that are no elements are 0."""
        zero = self.combine.identity(self.lanes)
        totals = [[f.local(zero.type, zero) for _ in range(ACCUMULATORS // len(steps))] for _ in steps]
        base, first, count = elements
        wide, partials = 1 if self.blocked else self.lanes, len(totals[0])
        stride, whole = self.access.strides[-1] * wide, f.div(count, wide)

        def add(k: int, i: Index, mask: ir.Value | None = None) -> None:
            at = f.add(first, f.mul(i, stride))
            value = self.access.load(f, base, at, self.lanes, mask)
            if mean is not None:
                f.prefetch(base, f.add(at, self.op.length * self.access.strides[-1]), self.ins[0].dtype)
                value = f.b.fsub(value, mean)
            value = value if mask is None else f.b.select(mask, value, zero)
            for own, step in zip(totals, steps, strict=True):
                f.set(own[k], step(f.get(own[k], zero.type), value))

        with f.loop(0, f.sub(whole, partials - 1), partials) as i:
            for k in range(partials):
                add(k, f.add(i, k))
        with f.loop(f.sub(whole, f.rem(whole, partials)), whole) as i:
            add(0, i)
        if not self.blocked:
            left = f.value(f.rem(count, wide))
            with f.when(f.b.icmp_signed(">", left, f.value(0))):
                add(-1, whole, f.tail_mask(left, self.lanes))
        vectors = [self.combine.all(f, [f.get(total, zero.type) for total in own]) for own in totals]
        return vectors if self.blocked else [self.combine.lanes(f, one) for one in vectors]


def _finite(f: FunctionEmitter, value: ir.Value) -> ir.Value:
    return f.b.fcmp_ordered("==", f.b.fsub(value, value), fill(value.type, 0.0))


@kernel_for(PartialMoments)
def choose(op: Op, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """Raises LookupError for a layout that is not the same on both sides."""
    if ins[0].block != out.block or out.block not in (1, isa.lanes):
        raise LookupError("Moments are written as the tensor lies")
    return PartialMomentsKernel
