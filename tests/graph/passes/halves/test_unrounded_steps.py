"""Roundings of float16 models between tensors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickrt.graph.passes.halves.unrounded_steps import unrounded, unrounded_op
from brickrt.ops.definitions.expressions import evaluate_expr
from brickrt.ops.expr import Apply, Expr, apply, arg, cast, const, walk
from brickrt.ops.operators.map import Map
from tests.support.graphs.small_graphs import array

F16, F32, I32 = (np.dtype(t) for t in (np.float16, np.float32, np.int32))


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
    assert unrounded_op(op) is op


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
