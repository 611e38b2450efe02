"""Softmax and norm, as tests of row-wise CUDA kernels share them."""

import numpy as np

from brickrt.ops.expr import apply, arg, cast, const
from brickrt.ops.operators.rowwise import Rowwise, Step

F32 = np.dtype(np.float32)


def softmax(axes, dtype=F32):
    """The exponentials are kept."""
    x = cast(arg(0, dtype), F32) if dtype != F32 else arg(0, F32)
    kept = cast(apply("exp", apply("sub", x, arg(1, F32))), dtype)
    sums = Step("sum", cast(arg(3, dtype), F32), apply("reciprocal", arg(0, F32)))
    result = cast(apply("mul", cast(arg(3, dtype), F32), arg(2, F32)), dtype)
    return Rowwise(tuple(axes), (Step("max", x), sums), result, kept)


def norm(axes, count, weights=2, dtype=F32):
    """(x - mean) / deviation · weight + bias."""
    x = cast(arg(0, dtype), F32)
    w, b = (cast(arg(k, dtype), F32) for k in (1, 2))
    mean, spread = (arg(k, F32) for k in (1 + weights, 2 + weights))
    centred = apply("sub", x, mean)
    average = apply("div", arg(0, F32), const(count, F32))
    deviation = apply("reciprocal", apply("sqrt", apply("add", average, const(1e-5, F32))))
    result = apply("mul", centred, spread)
    if weights:
        result = apply("add", apply("mul", result, w), b)
    steps = (Step("sum", x, average), Step("sum", apply("mul", centred, centred), deviation))
    return Rowwise(tuple(axes), steps, cast(result, dtype))
