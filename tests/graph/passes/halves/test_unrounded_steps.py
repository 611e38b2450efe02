"""Roundings of float16 models between tensors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickrt.graph.passes.halves.unrounded_steps import unrounded, unrounded_op
from brickrt.ops.base import evaluate_whole
from brickrt.ops.definitions.expressions import evaluate_expr
from brickrt.ops.expr import Apply, Expr, apply, arg, cast, const, walk
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise, Step
from tests.support.graphs.small_graphs import array

F16, F32, I32 = (np.dtype(t) for t in (np.float16, np.float32, np.int32))

LAYER = Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0))


def half(x: Expr) -> Expr:
    return cast(x, F16)


def roundings(expr: Expr) -> int:
    return sum(isinstance(e, Apply) and e.dtype == F16 for e in walk(expr))


def test_a_result_is_rounded_once():
    """product ─ float16 ─ sigmoid ─ float16 ─ times ─ float16 ─ float32."""
    x = half(arg(0, F32))
    expr = cast(apply("mul", x, apply("sigmoid", x)), F32)
    assert (roundings(expr), roundings(unrounded(expr))) == (4, 0)
    values = array(50)
    want = values / (1 + np.exp(-values.astype(np.float64)))
    np.testing.assert_allclose(evaluate_expr(unrounded(expr), [values]), want, rtol=1e-6)
    assert roundings(unrounded(half(expr))) == 1


def test_what_is_float32_stays_as_it_is():
    expr = apply("add", arg(0, F32), cast(arg(1, F16), F32))
    assert unrounded(expr) is expr
    op = Map(expr)
    assert unrounded_op(op, 2) is op


@pytest.mark.parametrize("fn", ["floor", "ceil", "round"])
def test_whole_numbers_are_of_rounded_values(fn):
    """2047.7 is 2048 in float16."""
    expr = cast(apply(fn, half(arg(0, F32))), F32)
    assert evaluate_expr(unrounded(expr), [np.array([2047.7], F32)]) == 2048


def test_equality_and_integers_are_of_rounded_values():
    x = half(arg(0, F32))
    for expr in (apply("eq", x, const(2048, F16)), apply("eq", cast(x, I32), const(2048, I32))):
        assert evaluate_expr(unrounded(expr), [np.array([2047.7], F32)])
    expr = cast(half(arg(0, I32)), F32)
    assert evaluate_expr(unrounded(expr), [np.array([2049], I32)]) == 2048


def test_results_of_rows_are_float32():
    """A mean and a factor, which each element would widen once more."""
    x, mean = cast(arg(0, F16), F32), cast(arg(1, F16), F32)
    squares = apply("mul", apply("sub", x, mean), apply("sub", x, mean))
    steps = Step("sum", x, half(apply("div", arg(0, F32), const(20.0, F32)))), Step("sum", squares, half(arg(0, F32)))
    value = half(apply("mul", apply("sub", x, mean), cast(arg(2, F16), F32)))
    before = Rowwise((1,), steps, value)
    after = unrounded_op(before, 1)
    assert [step.dtype for step in after.steps] == [F32, F32]
    assert sum(roundings(expr) for step in after.steps for expr in (step.pre, step.post) if expr is not None) == 0
    given = array(7, 20).astype(F16)
    wide = given.astype(np.float64) - given.astype(np.float64).mean(1, keepdims=True)
    want = wide * np.square(wide).sum(1, keepdims=True)
    errors = [np.abs(evaluate_whole(op, [given]) - want).max() for op in (before, after)]
    assert errors[1] < errors[0] and errors[1] <= 2**-10 * np.abs(want).max()


def test_results_of_rows_that_are_compared_stay_rounded():
    op = Rowwise((1,), (Step("max", arg(0, F16)),), half(cast(apply("eq", arg(0, F16), arg(1, F16)), F32)))
    assert unrounded_op(op, 1).steps[0].dtype == F16


def test_what_does_nothing_any_more_goes():
    """Partial results of reductions, and merged bricks, are planned for sums of elements, and products, as they are."""
    idle = cast(half(arg(0, F32)), F32)
    assert unrounded_op(Reduce("sum", (1,), True, idle, idle), 1) == Reduce("sum", (1,), True)
    assert unrounded_op(replace(LAYER, epilogue=idle), 2).epilogue is None
    gated = replace(LAYER, gate_parts=2, epilogue=idle)
    assert unrounded_op(gated, 2).epilogue == arg(0, F32)


NAMES = {"add": 2, "mul": 2, "max": 2, "sigmoid": 1, "neg": 1, "tanh": 1, "abs": 1}
LEAVES = st.sampled_from([half(arg(0, F32)), arg(1, F16), const(0.3, F16)])
CHAINS = st.recursive(
    LEAVES,
    lambda inner: st.sampled_from(sorted(NAMES)).flatmap(
        lambda fn: st.tuples(*[inner] * NAMES[fn]).map(lambda args: apply(fn, *args))
    ),
    max_leaves=8,
)


@given(CHAINS)
def test_chains_are_float32_between_what_is_read_and_stored(chain):
    """As the same formula of float32, to the last bit, and of the type that it had."""
    x, y = array(20, seed=1), array(20, seed=2).astype(np.float16)

    def single(e: Expr) -> Expr:
        if isinstance(e, Apply):
            return single(e.args[0]) if e.fn == "cast" else apply(e.fn, *map(single, e.args))
        return const(e.value, F32) if e.dtype == F16 and not hasattr(e, "index") else arg(e.index, F32)

    assert unrounded(chain).dtype == F16
    if isinstance(chain, Apply):
        got, want = evaluate_expr(unrounded(chain), [x, y]), evaluate_expr(single(chain), [x, y.astype(F32)])
        np.testing.assert_array_equal(got, np.broadcast_to(np.asarray(want), got.shape).astype(F16))
