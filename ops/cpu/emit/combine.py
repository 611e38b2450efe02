"""The four ways to combine values in registers: identity, one step, across lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.expressions import extreme
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I32, fill, register_type, vector
from brickrt.ops.cpu.emit.vector_math import lanes_of
from brickrt.ops.expr import BOOL


@dataclass(frozen=True)
class Combine:
    """`how` is sum, prod, max or min, of values of `dtype`; float16 is combined in float32, bool by or and and."""

    how: str
    dtype: np.dtype

    def identity(self, lanes: int) -> ir.Constant:
        return fill(vector(register_type(self.dtype), lanes), self._neutral())

    def _neutral(self) -> float | int:
        if self.how in ("sum", "prod"):
            neutral = int(self.how == "prod")
            return float(neutral) if self.dtype.kind == "f" else neutral
        if self.dtype.kind == "f":
            return float("-inf" if self.how == "max" else "inf")
        if self.dtype == BOOL:
            return int(self.how == "min")
        limits = np.iinfo(self.dtype)
        return int(limits.min if self.how == "max" else limits.max)

    def apply(self, f: FunctionEmitter, x: ir.Value, y: ir.Value) -> ir.Value:
        if self.dtype == BOOL:
            return f.b.or_(x, y) if self.how in ("sum", "max") else f.b.and_(x, y)
        if self.how in ("max", "min"):
            return extreme(f, self.how, self.dtype, x, y)
        float_name, int_name = {"sum": ("fadd", "add"), "prod": ("fmul", "mul")}[self.how]
        return getattr(f.b, float_name if self.dtype.kind == "f" else int_name)(x, y)

    def all(self, f: FunctionEmitter, values: Sequence[ir.Value]) -> ir.Value:
        """The values combined in pairs, pairs of pairs, and so on."""
        values = list(values)
        while len(values) > 1:
            pairs = [self.apply(f, x, y) for x, y in zip(values[::2], values[1::2])]
            values = pairs + values[len(values) // 2 * 2 :]
        return values[0]

    def lanes(self, f: FunctionEmitter, value: ir.Value) -> ir.Value:
        """All lanes of a vector as a scalar: lane k with lane k + half, until one is left."""
        half = lanes_of(value) // 2
        if not half:
            return value
        while half >= 1:
            low, high = (_shuffle(f, value, value, range(start, start + half)) for start in (0, half))
            value = self.apply(f, low, high)
            half //= 2
        return f.b.extract_element(value, I32(0))

    def across(self, f: FunctionEmitter, vectors: Sequence[ir.Value]) -> ir.Value:
        """As many vectors as lanes: lane k of the result is `lanes(vectors[k])`, to the last bit."""
        width = len(vectors) // 2
        vectors = list(vectors)
        while width:
            vectors = [self._fold(f, x, y, width) for x, y in zip(vectors[:width], vectors[width:])]
            width //= 2
        return vectors[0]

    def _fold(self, f: FunctionEmitter, x: ir.Value, y: ir.Value, width: int) -> ir.Value:
        """Of every 2·width lanes the two halves combined: those of x go first, those of y second."""
        lanes = lanes_of(x)
        first = [k if k % (2 * width) < width else lanes + k - width for k in range(lanes)]
        low = _shuffle(f, x, y, first)
        high = _shuffle(f, x, y, [k + width for k in first])
        return self.apply(f, low, high)


def _shuffle(f: FunctionEmitter, x: ir.Value, y: ir.Value, lanes: Sequence[int]) -> ir.Value:
    return f.b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes)))
