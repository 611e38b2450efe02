"""Between which numbers an expression's values lie."""

from __future__ import annotations

import math

import numpy as np
import pytest

from brickrt.ops.cpu.arithmetic.bounds import bounds_of
from brickrt.ops.expr import apply, arg, cast, const

F32 = np.dtype(np.float32)
ANY, BYTE = arg(0, F32), cast(arg(1, np.uint8), F32)
CLIPPED = apply("min", apply("max", apply("round", ANY), const(-3, F32)), const(5, F32))
CASES = [
    (ANY, (-math.inf, math.inf)),
    (const(2.5, F32), (2.5, 2.5)),
    (BYTE, (0, 255)),
    (CLIPPED, (-3, 5)),
    (apply("sub", BYTE, CLIPPED), (-5, 258)),
    (apply("add", BYTE, CLIPPED), (-3, 260)),
    (apply("mul", CLIPPED, const(-2, F32)), (-10, 6)),
    (apply("mul", ANY, const(0, F32)), (-math.inf, math.inf)),
    (apply("round", apply("mul", CLIPPED, const(0.3, F32))), (-1, 2)),
    (apply("max", ANY, const(1, F32)), (1, math.inf)),
    (apply("exp", BYTE), (-math.inf, math.inf)),
    (cast(arg(0, np.int32), F32), (-(2.0**31), 2.0**31 - 1)),
    (cast(arg(0, bool), F32), (0, 1)),
]


@pytest.mark.parametrize(("expr", "bounds"), CASES)
def test_bounds(expr, bounds):
    assert bounds_of(expr) == bounds
