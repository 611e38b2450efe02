"""The functions of the expression language: what each is in NumPy, and what builders, passes, planner and kernels know
of it.

How to print them is told by name in `ops/cpu/arithmetic/expressions.py` and `ops/cuda/printing/expressions.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from brickrt.ops.definitions.erf import erf


@dataclass(frozen=True)
class ElementwiseFunction:
    """A function of one element of each operand. It is defined for operands of these `kinds`: f floating point, which
    NumPy computes in float64, i integers, b bool."""

    define: Callable[..., np.ndarray]
    kinds: str
    operands: int = 1
    onnx: str = ""  # the operator that is this function and no more
    pace: Literal["quick", "divide", "slow"] = "quick"  # by which the planner models its time
    cpu_effort: int = 1  # machine operations per vector, by which CPU kernels are unrolled
    gpu_effort: int = 1  # the same per element on a GPU
    once: bool = False  # no sweep over a row should repeat it
    whole: bool = False  # its values are whole numbers, and whole numbers stay as they are
    abrupt: bool = False  # it may make much of a small difference
    contracting: bool = False  # |x f'(x)| ≤ |f(x)|
    powers: bool = False  # its values may be beyond float16 though its operands are not


def named(which: Callable[[ElementwiseFunction], bool]) -> frozenset[str]:
    """The names of the functions of which `which` holds."""
    return frozenset(name for name, function in FUNCTIONS.items() if which(function))


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """True division of floats; division of integers truncates toward zero (0 where the divisor is 0)."""
    if a.dtype.kind == "f":
        return a / b
    quotient = a // b
    inexact = (quotient * b != a) & (b != 0)
    return quotient + (inexact & ((a < 0) != (b < 0))).astype(a.dtype)


def _power(base: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """In float64 if one of them is. Integers wrap; a negative exponent of an integer gives the truncated reciprocal."""
    if base.dtype.kind == "f" or exponent.dtype.kind == "f":
        return np.power(base.astype(np.float64), exponent.astype(np.float64))
    whole = np.power(base, np.maximum(exponent, 0).astype(base.dtype))
    if exponent.dtype.kind == "u":
        return whole
    odd = (exponent & 1).astype(bool)
    one = np.ones_like(whole)
    reciprocal = np.where(base == 1, one, np.where(base == -one, np.where(odd, -one, one), 0 * one))
    return np.where(exponent >= 0, whole, reciprocal)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


_one, _two = ElementwiseFunction, partial(ElementwiseFunction, operands=2)
_slow, _slow_two = (partial(of, pace="slow") for of in (_one, _two))
FUNCTIONS: dict[str, ElementwiseFunction] = {
    "neg": _one(np.negative, "fi", onnx="Neg"),
    "abs": _one(np.abs, "fib", onnx="Abs"),
    "sign": _one(np.sign, "fi", onnx="Sign", abrupt=True),
    "sqrt": _one(np.sqrt, "f", onnx="Sqrt", pace="divide", gpu_effort=8),
    "exp": _slow(np.exp, "f", onnx="Exp", cpu_effort=16, gpu_effort=12, once=True, powers=True),
    "log": _slow(np.log, "f", onnx="Log", cpu_effort=24, gpu_effort=16, once=True),
    "sin": _slow(np.sin, "f", onnx="Sin", cpu_effort=24, once=True),
    "cos": _slow(np.cos, "f", onnx="Cos", cpu_effort=24, once=True),
    "tan": _slow(np.tan, "f", onnx="Tan", cpu_effort=32),
    "asin": _slow(np.arcsin, "f", onnx="Asin", cpu_effort=20),
    "acos": _slow(np.arccos, "f", onnx="Acos", cpu_effort=24),
    "atan": _slow(np.arctan, "f", onnx="Atan", cpu_effort=20),
    "sinh": _slow(np.sinh, "f", onnx="Sinh", cpu_effort=32, powers=True),
    "cosh": _slow(np.cosh, "f", onnx="Cosh", cpu_effort=24, powers=True),
    "tanh": _slow(np.tanh, "f", onnx="Tanh", cpu_effort=20, gpu_effort=24, once=True, contracting=True),
    "asinh": _slow(np.arcsinh, "f", onnx="Asinh", cpu_effort=48),
    "acosh": _slow(np.arccosh, "f", onnx="Acosh", cpu_effort=48),
    "atanh": _slow(np.arctanh, "f", onnx="Atanh", cpu_effort=40),
    "erf": _slow(erf, "f", onnx="Erf", cpu_effort=32, gpu_effort=24, once=True, contracting=True),
    "sigmoid": _slow(_sigmoid, "f", onnx="Sigmoid", cpu_effort=20, gpu_effort=24, once=True),
    "floor": _one(np.floor, "fi", onnx="Floor", whole=True, abrupt=True),
    "ceil": _one(np.ceil, "fi", onnx="Ceil", whole=True, abrupt=True),
    "round": _one(np.round, "fi", onnx="Round", whole=True, abrupt=True),
    "reciprocal": _one(lambda x: _divide(np.ones_like(x), x), "fi", onnx="Reciprocal", pace="divide", gpu_effort=8),
    "not": _one(np.logical_not, "b", onnx="Not"),
    "bitnot": _one(np.invert, "ib", onnx="BitwiseNot"),
    "add": _two(np.add, "fib", onnx="Add"),
    "sub": _two(np.subtract, "fi", onnx="Sub"),
    "mul": _two(np.multiply, "fib", onnx="Mul"),
    "div": _two(_divide, "fi", onnx="Div", pace="divide", gpu_effort=8),
    "mod": _slow_two(np.mod, "fi", gpu_effort=40, abrupt=True),
    "fmod": _slow_two(np.fmod, "fi", cpu_effort=40, abrupt=True),
    "pow": _slow_two(_power, "fi", cpu_effort=40, powers=True),
    "max": _two(np.maximum, "fib"),
    "min": _two(np.minimum, "fib"),
    "and": _two(np.logical_and, "b", onnx="And"),
    "or": _two(np.logical_or, "b", onnx="Or"),
    "xor": _two(np.logical_xor, "b", onnx="Xor"),
    "bitand": _two(np.bitwise_and, "ib", onnx="BitwiseAnd"),
    "bitor": _two(np.bitwise_or, "ib", onnx="BitwiseOr"),
    "bitxor": _two(np.bitwise_xor, "ib", onnx="BitwiseXor"),
    "shl": _two(np.left_shift, "i"),
    "shr": _two(np.right_shift, "i"),
    "eq": _two(np.equal, "fib", onnx="Equal", abrupt=True),
    "ne": _two(np.not_equal, "fib", abrupt=True),
    "lt": _two(np.less, "fib", onnx="Less"),
    "le": _two(np.less_equal, "fib", onnx="LessOrEqual"),
    "gt": _two(np.greater, "fib", onnx="Greater"),
    "ge": _two(np.greater_equal, "fib", onnx="GreaterOrEqual"),
    "isnan": _one(np.isnan, "fi", onnx="IsNaN", abrupt=True),
    "isinf": _one(np.isinf, "fi", abrupt=True),
    "isposinf": _one(np.isposinf, "fi", abrupt=True),
    "isneginf": _one(np.isneginf, "fi", abrupt=True),
    "where": ElementwiseFunction(np.where, "fib", operands=3),
}
WHOLE = named(lambda function: function.whole)
