"""Scalar expressions in NumPy: the definition that every emitted or printed kernel is compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from brickrt.ops.definitions.elementwise_functions import FUNCTIONS
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
    return round_to(np.asarray(FUNCTIONS[expr.fn].define(*args)), target)
