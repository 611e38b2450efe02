"""Scalar expressions in NumPy: the definition that every emitted or printed kernel is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from brickrt.ops.definitions.erf import erf
from brickrt.ops.expr import Apply, Arg, Const, Expr
from brickrt.ops.types import is_floating

FLOAT64 = np.dtype(np.float64)
INT64 = np.dtype(np.int64)


def compute_type(dtype: np.dtype) -> np.dtype:
    """The type in which arithmetic on `dtype` is done: float64 for floating point, `dtype` itself for the rest."""
    return FLOAT64 if is_floating(dtype) else dtype


def round_to(value: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`value` converted as ONNX Cast does: floats to integers truncate, integers wrap, anything but 0 is true."""
    with np.errstate(all="ignore"):
        if value.dtype.kind == "f" and dtype.kind in "iu" and dtype != np.uint64:
            # Through int64, because NumPy's direct conversion to a narrow type differs between machines.
            value = value.astype(INT64)
        return value.astype(dtype, copy=False)


def evaluate_expr(expr: Expr, operands: Sequence[np.ndarray]) -> np.ndarray:
    """The value of the expression over operands that broadcast together; `Arg(k)` is `operands[k]`.

    A floating-point result is float64, not yet rounded to `expr.dtype`: that is left to the caller (`round_to`). Its
    shape is that of the operands that the expression uses, which may be smaller than the broadcast of all.
    """
    with np.errstate(all="ignore"):
        return np.asarray(_value(expr, operands, {}))


def _value(expr: Expr, operands: Sequence[np.ndarray], done: dict[int, np.ndarray]) -> np.ndarray:
    """`done` holds the value of each node already met, since trees share subtrees after substitution."""
    if id(expr) not in done:
        done[id(expr)] = _compute(expr, operands, done)
    return done[id(expr)]


def _compute(expr: Expr, operands: Sequence[np.ndarray], done: dict[int, np.ndarray]) -> np.ndarray:
    target = compute_type(expr.dtype)
    if isinstance(expr, Arg):
        return np.asarray(operands[expr.index]).astype(target, copy=False)
    if isinstance(expr, Const):
        return np.asarray(expr.value, target)
    if not isinstance(expr, Apply):
        raise ValueError(f"expression node {type(expr).__name__} has no NumPy definition")
    args = [_value(a, operands, done) for a in expr.args]
    if expr.fn == "cast":
        return round_to(args[0], expr.dtype).astype(target, copy=False)
    return np.asarray(FUNCTIONS[expr.fn](*args)).astype(target, copy=False)


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """True division of floats; division of integers truncates toward zero (0 where the divisor is 0)."""
    if a.dtype.kind == "f":
        return a / b
    quotient = a // b
    inexact = (quotient * b != a) & (b != 0)
    return quotient + (inexact & ((a < 0) != (b < 0))).astype(a.dtype)


def _power(base: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """The type is the base's. Integers wrap; a negative exponent of an integer gives the truncated reciprocal."""
    if base.dtype.kind == "f" or exponent.dtype.kind == "f":
        return round_to(np.power(base.astype(FLOAT64), exponent.astype(FLOAT64)), base.dtype)
    whole = np.power(base, np.maximum(exponent, 0).astype(base.dtype))
    if exponent.dtype.kind == "u":
        return whole
    odd = (exponent & 1).astype(bool)
    one = np.ones_like(whole)
    reciprocal = np.where(base == 1, one, np.where(base == -one, np.where(odd, -one, one), 0 * one))
    return np.where(exponent >= 0, whole, reciprocal)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": erf,
    "sigmoid": _sigmoid,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "reciprocal": lambda x: _divide(np.ones_like(x), x),
    "not": np.logical_not,
    "bitnot": np.invert,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "mod": np.mod,
    "fmod": np.fmod,
    "pow": _power,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isposinf": np.isposinf,
    "isneginf": np.isneginf,
    "where": np.where,
}
