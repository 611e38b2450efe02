"""Expressions are written in one way where that does not change their value."""

from __future__ import annotations

import numpy as np

from brickrt.ops.definitions.expressions import evaluate_expr
from brickrt.ops.expr import apply, arg, const, ordered

F32 = np.dtype(np.float32)


def test_operands_of_sums_and_products_are_in_order():
    x, y, z = (arg(k, F32) for k in range(3))
    shortcut = apply("max", apply("add", apply("add", y, x), z), const(0, F32))
    assert ordered(shortcut) == ordered(apply("max", apply("add", apply("add", x, y), z), const(0, F32)))
    assert ordered(apply("mul", z, x)) == apply("mul", x, z)
    for fn in ("sub", "div", "max", "min"):  # of the last two a NaN or a zero may be another
        assert ordered(apply(fn, y, x)) == apply(fn, y, x)
    operands = list(np.random.default_rng(0).standard_normal((3, 100)).astype(np.float32))
    np.testing.assert_array_equal(evaluate_expr(ordered(shortcut), operands), evaluate_expr(shortcut, operands))
