"""Arithmetic on indices that are Python's integers, sizes (`sizes.py`) or LLVM's values: integers and sizes are folded.

So general Python code emits specific machine code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import I64, Index, index_constant
from brickrt.ops.cpu.emit.reusing_builder import ReusingBuilder
from brickrt.ops.cpu.emit.sizes import Size, greatest, least

FOLDED = (int, Size)


def is_folded(*indices: Index) -> bool:
    """Whether these are integers and sizes, none an LLVM value."""
    return all(isinstance(i, FOLDED) for i in indices)


class IndexArithmetic:
    """Emits index arithmetic with the llvmlite builder `b`. An operation on integers alone gives an integer, one on
    sizes too a size."""

    b: ReusingBuilder

    def __init__(self) -> None:
        self._moved: dict[ir.Value, tuple[ir.Value, int]] = {}  # sums of a value and a constant

    def value(self, x: Index) -> ir.Value:
        """The index as an LLVM value."""
        if isinstance(x, Size):
            return self.size(x)
        return index_constant(int(x)) if isinstance(x, int | np.integer) else x

    def size(self, x: Size) -> ir.Value:
        """A size as an LLVM value. Raises TypeError where code has no table of them."""
        raise TypeError(f"{x!r} in code that has no sizes")

    def add(self, *terms: Index) -> Index:
        """The sum of the terms. Integers are added last, those inside of terms too: what is left is often known
        already, and an integer costs nothing in an address."""
        fixed, total = 0, None
        sizes: int | Size = 0
        for term in terms:
            if isinstance(term, int):
                fixed += term
            elif isinstance(term, Size):
                sizes += term
            else:
                term, more = self.parts(term)
                fixed += more
                total = term if total is None else self.b.add(total, term)
        if total is None:
            return sizes + fixed
        if not isinstance(sizes, int) or sizes:
            total = self.b.add(total, self.value(sizes))
        if not fixed:
            return total
        moved = self.b.add(total, index_constant(fixed))
        self._moved[moved] = total, fixed
        return moved

    def parts(self, x: ir.Value) -> tuple[ir.Value, int]:
        """A value and an integer whose sum is x."""
        return self._moved.get(x, (x, 0))

    def sub(self, x: Index, y: Index) -> Index:
        """x - y."""
        if isinstance(y, FOLDED):
            return self.add(x, -y)
        return self.b.sub(self.value(x), y)

    def mul(self, x: Index, y: Index) -> Index:
        """x·y; times 0 or 1 costs nothing."""
        if isinstance(x, FOLDED) and isinstance(y, FOLDED):
            return x * y
        if isinstance(x, FOLDED):
            x, y = y, x
        if isinstance(y, int) and y in (0, 1):
            return 0 if y == 0 else x
        if isinstance(y, int) and isinstance(x, ir.Value) and x in self._moved:
            x, fixed = self._moved[x]
            return self.add(self.mul(x, y), fixed * y)
        return self.b.mul(self.value(x), self.value(y))

    def div(self, x: Index, y: int | Size) -> Index:
        """Floor division by a positive integer or size, for any sign of x."""
        if isinstance(x, FOLDED):
            return x // y
        if isinstance(y, int) and y & (y - 1) == 0:
            return x if y == 1 else self.b.ashr(x, I64(y.bit_length() - 1))
        quotient = self.b.sdiv(x, self.value(y))
        inexact_negative = self.b.icmp_signed("<", self.b.srem(x, self.value(y)), I64(0))
        return self.b.sub(quotient, self.b.zext(inexact_negative, I64))

    def rem(self, x: Index, y: int | Size) -> Index:
        """The remainder of floor division by a positive integer or size, never negative."""
        return self.sub(x, self.mul(self.div(x, y), y))

    def minimum(self, x: Index, y: Index) -> Index:
        """The lesser of two signed indices."""
        if isinstance(x, FOLDED) and isinstance(y, FOLDED):
            return least(x, y)
        x, y = self.value(x), self.value(y)
        return self.b.select(self.b.icmp_signed("<", x, y), x, y)

    def maximum(self, x: Index, y: Index) -> Index:
        """The greater of two signed indices."""
        if isinstance(x, FOLDED) and isinstance(y, FOLDED):
            return greatest(x, y)
        x, y = self.value(x), self.value(y)
        return self.b.select(self.b.icmp_signed(">", x, y), x, y)

    def dot(self, indices: Sequence[Index], strides: Sequence[Index]) -> Index:
        """Sum of index times stride."""
        return self.add(0, *[self.mul(i, s) for i, s in zip(indices, strides, strict=True)])
