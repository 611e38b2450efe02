"""Short names for the scalar functions that builders combine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from brickrt.ops.expr import Const, Expr, apply, cast, const

Unary = Callable[[Expr], Expr]

F16, F32, F64 = (np.dtype(t) for t in (np.float16, np.float32, np.float64))
FLOATS = frozenset((F16, F32, F64))

add, sub, mul, div = (partial(apply, fn) for fn in ("add", "sub", "mul", "div"))
maximum, minimum = partial(apply, "max"), partial(apply, "min")
absolute, exp, log, sqrt = (partial(apply, fn) for fn in ("abs", "exp", "log", "sqrt"))
erf, sigmoid, tanh, reciprocal = (partial(apply, fn) for fn in ("erf", "sigmoid", "tanh", "reciprocal"))
less, less_equal, greater, greater_equal = (partial(apply, fn) for fn in ("lt", "le", "gt", "ge"))
equal, either, where, rounded = (partial(apply, fn) for fn in ("eq", "or", "where", "round"))


def like(x: Expr, value: float | int | bool) -> Const:
    """A constant of the type of `x`."""
    return const(value, x.dtype)


def square(x: Expr) -> Expr:
    """x·x."""
    return mul(x, x)


def wide_type(dtype: np.dtype) -> np.dtype:
    """The type to compute in: float32 for float16."""
    return F32 if dtype == F16 else dtype


def widened(x: Expr) -> Expr:
    """`x` in float32 if it is float16."""
    return cast(x, wide_type(x.dtype))


def in_float32(function: Callable[..., Expr]) -> Callable[..., Expr]:
    """`function` computed in float32 where its first operand is float16; other types are left as they are."""

    def compute(*args: Expr) -> Expr:
        result = function(*map(widened, args))
        return cast(result, F16) if args[0].dtype == F16 and result.dtype == F32 else result

    return compute
