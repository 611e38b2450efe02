"""Functions of one byte whose value is a byte: activations between quantized tensors. A table of 256 has them whole.

Each step is rounded to its own type, as ONNX defines it and as kernels compute it: many quantized numbers lie halfway
between those of another scale, where the last bit decides.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from brickrt.ops.definitions.expressions import evaluate_expr, round_to
from brickrt.ops.expr import Apply, Arg, Expr, distinct

FEWEST_STEPS = 12
"""Operations from which on it takes less time to look the result up: to quantize by another scale takes nine."""


def is_byte_function(expr: Expr) -> bool:
    """Whether an expression of many steps maps the bytes of one operand to bytes."""
    leaves = {(e.index, e.dtype) for e in distinct(expr) if isinstance(e, Arg)}
    steps = sum(isinstance(e, Apply) for e in distinct(expr))
    return len(leaves) == 1 and steps >= FEWEST_STEPS and all(map(is_byte, (expr.dtype, *(t for _, t in leaves))))


def is_byte(dtype: np.dtype) -> bool:
    """Whether elements are integers of one byte."""
    return dtype.kind in "iu" and dtype.itemsize == 1


def byte_table(expr: Expr) -> np.ndarray:
    """The values, as uint8[256], by the unsigned byte that has the operand's bits."""
    (dtype,) = {e.dtype for e in distinct(expr) if isinstance(e, Arg)}
    return _value(expr, np.arange(256, dtype=np.uint8).view(dtype), {}).view(np.uint8)


def _value(expr: Expr, operand: np.ndarray, done: dict[int, np.ndarray]) -> np.ndarray:
    if isinstance(expr, Arg):
        return operand
    if id(expr) not in done:
        args = [_value(a, operand, done) for a in expr.args] if isinstance(expr, Apply) else []
        step = expr
        if isinstance(expr, Apply):
            step = replace(expr, args=tuple(Arg(a.dtype, k) for k, a in enumerate(expr.args)))
        done[id(expr)] = round_to(evaluate_expr(step, args), expr.dtype)
    return done[id(expr)]
