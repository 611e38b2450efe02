"""The four ways to combine values in registers (sum, prod, max, min): one step, all of several, across lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.arithmetic.expressions import extreme
from brickrt.ops.cpu.arithmetic.functions.vector_math import lanes_of
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I32, fill, register_type, vector
from brickrt.ops.expr import BOOL
from brickrt.ops.types import is_floating


def pairwise(values: Sequence[ir.Value], combine: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
    """Combines neighbours level by level, which keeps chains of dependent instructions short."""
    while len(values) > 1:
        pairs = [combine(x, y) for x, y in zip(values[::2], values[1::2])]
        values = [*pairs, *values[2 * len(pairs) :]]
    return values[0]


@dataclass(frozen=True)
class Combine:
    """`how` is sum, prod, max or min, of values of `dtype`. float16 and bfloat16 are combined in float32; of bool, sum
    and max are "or", prod and min are "and"."""

    how: str
    dtype: np.dtype

    def identity(self, lanes: int) -> ir.Constant:
        """The vector that changes nothing it is combined with."""
        return fill(vector(register_type(self.dtype), lanes), self._neutral())

    def _neutral(self) -> float | int:
        if self.how in ("sum", "prod"):
            neutral = int(self.how == "prod")
            return float(neutral) if is_floating(self.dtype) else neutral
        if is_floating(self.dtype):
            return float("-inf" if self.how == "max" else "inf")
        if self.dtype == BOOL:
            return int(self.how == "min")
        limits = np.iinfo(self.dtype)
        return int(limits.min if self.how == "max" else limits.max)

    def apply(self, f: FunctionEmitter, x: ir.Value, y: ir.Value) -> ir.Value:
        """Two values combined, lane by lane."""
        if self.dtype == BOOL:
            return f.b.or_(x, y) if self.how in ("sum", "max") else f.b.and_(x, y)
        if self.how in ("max", "min"):
            return extreme(f, self.how, self.dtype, x, y)
        float_name, int_name = {"sum": ("fadd", "add"), "prod": ("fmul", "mul")}[self.how]
        return getattr(f.b, float_name if is_floating(self.dtype) else int_name)(x, y)

    def all(self, f: FunctionEmitter, values: Sequence[ir.Value]) -> ir.Value:
        """The values combined in pairs, pairs of pairs, and so on."""
        return pairwise(values, lambda x, y: self.apply(f, x, y))

    def lanes(self, f: FunctionEmitter, value: ir.Value) -> ir.Value:
        """All lanes of a vector as a scalar: lane k with lane k + half, until one is left."""
        half = lanes_of(value) // 2
        if not half:
            return value
        while half >= 1:
            low, high = (f.shuffle(value, value, range(start, start + half)) for start in (0, half))
            value = self.apply(f, low, high)
            half //= 2
        return f.b.extract_element(value, I32(0))

    def across(self, f: FunctionEmitter, vectors: Sequence[ir.Value]) -> ir.Value:
        """As many vectors as lanes: lane k of the result is `lanes(vectors[k])`, to the last bit."""
        width = len(vectors) // 2
        vectors = list(vectors)
        while width:
            vectors = [self._halve(f, x, y, width) for x, y in zip(vectors[:width], vectors[width:])]
            width //= 2
        return vectors[0]

    def _halve(self, f: FunctionEmitter, x: ir.Value, y: ir.Value, width: int) -> ir.Value:
        """Combines the two halves of every 2·width lanes: those of x go to the first half, those of y to the second."""
        lanes = lanes_of(x)
        first = [k if k % (2 * width) < width else lanes + k - width for k in range(lanes)]
        low = f.shuffle(x, y, first)
        high = f.shuffle(x, y, [k + width for k in first])
        return self.apply(f, low, high)
