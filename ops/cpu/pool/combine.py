"""What a pooling window does with its values: in registers, for one pixel or a vector of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.arithmetic.combine import pairwise
from brickrt.ops.cpu.arithmetic.expressions import convert, extreme
from brickrt.ops.cpu.arithmetic.functions.scalar_math import libm
from brickrt.ops.cpu.arithmetic.functions.vector_math import lanes_of
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index, fill, register_type, vector
from brickrt.ops.operators.pool import Pool, lowest
from brickrt.ops.types import is_floating

DOUBLE = np.dtype(np.float64)


@dataclass(frozen=True)
class PoolMath:
    """`dtype` is that of the operands; float16 and bfloat16 are computed in float32, like everything in registers."""

    f: FunctionEmitter
    op: Pool
    dtype: np.dtype

    @property
    def floating(self) -> bool:
        """Whether values are floats."""
        return is_floating(self.dtype)

    def identity(self, lanes: int) -> ir.Constant:
        """What changes no value that it is combined with."""
        kind = vector(register_type(self.dtype), lanes)
        return fill(kind, lowest(self.dtype) if self.op.kind == "max" else 0)

    def combine(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Two values that `prepare` has seen."""
        if self.op.kind == "max":
            return extreme(self.f, "max", self.dtype, x, y)
        return self.f.b.fadd(x, y) if self.floating else self.f.b.add(x, y)

    def combine_all(self, values: Sequence[ir.Value]) -> ir.Value:
        """All values combined: sums of floats in their order, on which their bits depend."""
        if self.op.kind == "max" and self.floating and len(values) > 2:
            return self._max_of_floats(values)
        return reduce(self.combine, values) if self.floating else pairwise(values, self.combine)

    def _max_of_floats(self, values: Sequence[ir.Value]) -> ir.Value:
        """One machine instruction per value, which loses NaN, and half a one to find out whether there was any."""
        b = self.f.b
        most = pairwise(values, lambda x, y: b.select(b.fcmp_ordered(">", x, y), x, y))
        pairs = zip(values, [*values[1:], values[-1]], strict=True)
        unordered = [b.fcmp_unordered("uno", x, y) for k, (x, y) in enumerate(pairs) if k % 2 == 0]
        nan = fill(most.type, float("nan"))
        return b.select(reduce(b.or_, unordered), nan, most)

    def prepare(self, x: ir.Value) -> ir.Value:
        """What a tap contributes: |x|^p for Lp."""
        if self.op.kind != "lp":
            return x
        b = self.f.b
        if self.floating:
            size = self.f.math("fabs", x)
        else:
            negative = b.icmp_signed("<", x, fill(x.type, 0))
            size = b.select(negative, b.neg(x), x) if self.dtype.kind == "i" else x
        return self._power(size, self.op.p)

    def _power(self, x: ir.Value, exponent: int) -> ir.Value:
        times = self.f.b.fmul if self.floating else self.f.b.mul
        if exponent == 1:
            return x
        half = self._power(x, exponent // 2)
        square = times(half, half)
        return times(square, x) if exponent % 2 else square

    def finish(self, total: ir.Value, count: Index) -> ir.Value:
        """The result, for a window that counts `count` taps."""
        if self.op.kind == "max" or (self.op.kind, self.op.p) == ("lp", 1):
            return total
        if not self.floating:
            rounded = self._finish(convert(self.f, total, self.dtype, DOUBLE), count)
            return convert(self.f, rounded, DOUBLE, self.dtype)
        return self._finish(total, count)

    def _finish(self, total: ir.Value, count: Index) -> ir.Value:
        f, kind = self.f, total.type
        if self.op.kind == "lp":
            if self.op.p == 2:
                return f.math("sqrt", total)
            return libm(f, "pow", total, fill(kind, 1.0 / self.op.p))
        lanes = lanes_of(total)
        number = kind.element if lanes > 1 else kind
        divisor = f.b.sitofp(f.value(f.maximum(count, 1)), number)
        share = f.b.fdiv(fill(number, 1.0), divisor)  # of a number of taps that is known, LLVM computes it
        return f.b.fmul(total, f.splat(share, lanes))
