"""Arithmetic on indices that are Python's integers or LLVM's values: constants are folded.

So general Python code emits specific machine code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import I64, Index, index_constant
from brickrt.ops.cpu.emit.reusing_builder import ReusingBuilder


class IndexArithmetic:
    """Emits index arithmetic with the llvmlite builder `b`. An operation on integers alone gives an integer."""

    b: ReusingBuilder

    def __init__(self) -> None:
        self._moved: dict[ir.Value, tuple[ir.Value, int]] = {}  # sums of a value and a constant

    @staticmethod
    def value(x: Index) -> ir.Value:
        """The index as an LLVM value."""
        return index_constant(int(x)) if isinstance(x, int | np.integer) else x

    def add(self, *terms: Index) -> Index:
        """The sum of the terms. Constants that are inside of terms are added last: what is left is often known already,
        and a constant costs nothing in an address."""
        fixed, total = 0, None
        for term in terms:
            if isinstance(term, int):
                fixed += term
                continue
            term, more = self.parts(term)
            fixed += more
            total = term if total is None else self.b.add(total, term)
        if total is None or not fixed:
            return fixed if total is None else total
        moved = self.b.add(total, index_constant(fixed))
        self._moved[moved] = total, fixed
        return moved

    def parts(self, x: ir.Value) -> tuple[ir.Value, int]:
        """A value and a constant whose sum is x."""
        return self._moved.get(x, (x, 0))

    def sub(self, x: Index, y: Index) -> Index:
        """x - y."""
        if isinstance(y, int):
            return self.add(x, -y)
        return self.b.sub(self.value(x), y)

    def mul(self, x: Index, y: Index) -> Index:
        """x·y; times 0 or 1 costs nothing."""
        if isinstance(x, int) and isinstance(y, int):
            return x * y
        if isinstance(x, int):
            x, y = y, x
        if isinstance(y, int) and y in (0, 1):
            return 0 if y == 0 else x
        if isinstance(y, int) and x in self._moved:
            x, fixed = self._moved[x]
            return self.add(self.mul(x, y), fixed * y)
        return self.b.mul(self.value(x), self.value(y))

    def div(self, x: Index, y: int) -> Index:
        """Floor division by a positive constant, for any sign of x."""
        if isinstance(x, int):
            return x // y
        if y == 1:
            return x
        if y & (y - 1) == 0:
            return self.b.ashr(x, I64(y.bit_length() - 1))
        quotient = self.b.sdiv(x, I64(y))
        inexact_negative = self.b.icmp_signed("<", self.b.srem(x, I64(y)), I64(0))
        return self.b.sub(quotient, self.b.zext(inexact_negative, I64))

    def rem(self, x: Index, y: int) -> Index:
        """The remainder of floor division by a positive constant, never negative."""
        return self.sub(x, self.mul(self.div(x, y), y))

    def minimum(self, x: Index, y: Index) -> Index:
        """The lesser of two signed indices."""
        if isinstance(x, int) and isinstance(y, int):
            return min(x, y)
        x, y = self.value(x), self.value(y)
        return self.b.select(self.b.icmp_signed("<", x, y), x, y)

    def maximum(self, x: Index, y: Index) -> Index:
        """The greater of two signed indices."""
        if isinstance(x, int) and isinstance(y, int):
            return max(x, y)
        x, y = self.value(x), self.value(y)
        return self.b.select(self.b.icmp_signed(">", x, y), x, y)

    def dot(self, indices: Sequence[Index], strides: Sequence[Index]) -> Index:
        """Sum of index times stride."""
        return self.add(0, *[self.mul(i, s) for i, s in zip(indices, strides, strict=True)])
