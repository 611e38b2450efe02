"""What means divide by: their code reads it behind its sizes, and so is good for means of other numbers of elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.arithmetic.conversions import convert
from brickrt.ops.cpu.arithmetic.expressions import CONTRACTING, emit_expr
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.expr import Apply, Arg, Const, Expr, distinct
from brickrt.ops.types import is_floating

FLOAT64 = np.dtype(np.float64)
Post = Expr | None


def divisors(posts: Sequence[Post]) -> np.ndarray:
    """What the expressions divide by, float64, in the order in which `without_divisors` numbers them."""
    return np.array(_opened(posts)[1], np.float64)


def without_divisors(posts: Sequence[Post]) -> list[Post]:
    """The expressions with operands, from number 1 on, in place of the constants that they divide by."""
    return _opened(posts)[0]


def finished(f: FunctionEmitter, post: Post, value: ir.Value, lanes: int) -> ir.Value:
    """An expression of `without_divisors` applied to a combined value."""
    if post is None:
        return value
    operands = {e.index: e.dtype for e in distinct(post) if isinstance(e, Arg) and e.index > 0}
    table = f.look_ups() if operands else None
    known = [value] * (1 + max(operands, default=0))
    for number, dtype in operands.items():
        divisor = convert(f, f.load(table, number - 1, FLOAT64), FLOAT64, dtype)
        known[number] = f.splat(divisor, lanes)
    return emit_expr(f, post, known, lanes)


def _opened(posts: Sequence[Post]) -> tuple[list[Post], list[float]]:
    found: list[float] = []

    def opened(expr: Expr) -> Expr:
        if not isinstance(expr, Apply) or expr.fn in CONTRACTING:
            return expr
        args = [opened(arg) for arg in expr.args]
        if expr.fn == "div" and isinstance(args[1], Const) and is_floating(expr.dtype):
            found.append(float(args[1].value))
            args[1] = Arg(expr.dtype, len(found))
        return Apply(expr.dtype, expr.fn, tuple(args))

    return [post and opened(post) for post in posts], found
