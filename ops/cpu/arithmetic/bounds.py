"""Between which numbers the value of an expression lies, whatever its operands hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from brickrt.ops.cpu.arithmetic.open_constants import OpenConst
from brickrt.ops.expr import Apply, Const, Expr
from brickrt.ops.types import is_floating

Bounds = tuple[float, float]
ANYTHING: Bounds = (-math.inf, math.inf)
RISING: dict[str, Callable[[float], float]] = {
    "round": round,
    "floor": math.floor,
    "ceil": math.ceil,
}  # never more for less


def bounds_of(expr: Expr) -> Bounds:
    """The least and the greatest value, NaN left out; infinite where nothing is known. Roundings of a sum or product
    are not among them: these numbers are good to tell magnitudes."""
    if isinstance(expr, Const):
        return float(expr.value), float(expr.value)
    if isinstance(expr, OpenConst):
        return expr.least, expr.largest
    if not is_floating(expr.dtype):
        return _bounds_of_type(expr.dtype)
    if not isinstance(expr, Apply):
        return ANYTHING
    return _applied(expr.fn, [bounds_of(a) for a in expr.args])


def _bounds_of_type(dtype: np.dtype) -> Bounds:
    if dtype == np.dtype(bool):
        return 0.0, 1.0
    info = np.iinfo(dtype)
    return float(info.min), float(info.max)


def _applied(fn: str, args: Sequence[Bounds]) -> Bounds:
    """What a function of values between such bounds lies between."""
    if fn == "cast":
        return args[0]
    if fn in RISING:
        lo, hi = (RISING[fn](end) if math.isfinite(end) else end for end in args[0])
        return lo, hi
    if fn in ("max", "min"):
        pick = max if fn == "max" else min
        return pick(lo for lo, _ in args), pick(hi for _, hi in args)
    if fn == "add":
        return sum(lo for lo, _ in args), sum(hi for _, hi in args)
    if fn == "sub":
        (a, b), (c, d) = args
        return a - d, b - c
    if fn == "mul":
        ends = [x * y for x, y in product(*args)]
        return ANYTHING if any(math.isnan(end) for end in ends) else (min(ends), max(ends))
    return ANYTHING
