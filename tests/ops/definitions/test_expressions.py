"""Scalar expressions in NumPy: every function, and the corners where languages differ."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest

from brickrt.ops.definitions.elementwise_functions import named
from brickrt.ops.definitions.expressions import evaluate_expr
from brickrt.ops.expr import COMPARE, TEST, Apply, apply, arg, cast, const

NAN, INF = math.nan, math.inf


def run(fn: str, *operands, dtypes=("float32", "float32")) -> np.ndarray:
    arrays = [np.asarray(v, d) for v, d in zip(operands, dtypes, strict=False)]
    return evaluate_expr(apply(fn, *(arg(k, a.dtype) for k, a in enumerate(arrays))), arrays)


UNARY_CASES: dict[str, tuple[Callable[[float], float], list[float]]] = {
    "neg": (lambda x: -x, [-2, 0.5]),
    "abs": (abs, [-2, 0.5]),
    "sign": (lambda x: float((x > 0) - (x < 0)), [-2, 0, 3]),
    "sqrt": (math.sqrt, [0, 2]),
    "exp": (math.exp, [-2, 1]),
    "log": (math.log, [0.5, 4]),
    "sin": (math.sin, [-2, 1]),
    "cos": (math.cos, [-2, 1]),
    "tan": (math.tan, [-2, 1]),
    "asin": (math.asin, [-0.5, 1]),
    "acos": (math.acos, [-0.5, 1]),
    "atan": (math.atan, [-0.5, 9]),
    "sinh": (math.sinh, [-2, 1]),
    "cosh": (math.cosh, [-2, 1]),
    "tanh": (math.tanh, [-2, 1]),
    "asinh": (math.asinh, [-2, 1]),
    "acosh": (math.acosh, [1, 3]),
    "atanh": (math.atanh, [-0.5, 0.25]),
    "erf": (math.erf, [-2, 0.25, 5]),
    "sigmoid": (lambda x: 1 / (1 + math.exp(-x)), [-3, 0, 40]),
    "floor": (math.floor, [-1.5, 2.5]),
    "ceil": (math.ceil, [-1.5, 2.5]),
    "round": (round, [-1.5, 0.5, 1.5, 2.5]),
    "reciprocal": (lambda x: 1 / x, [-4, 0.5]),
}


def test_every_unary_function_has_a_case() -> None:
    assert UNARY_CASES.keys() | TEST == named(lambda f: f.operands == 1 and "f" in f.kinds)


@pytest.mark.parametrize("fn", UNARY_CASES)
def test_unary(fn: str) -> None:
    scalar, values = UNARY_CASES[fn]
    result = run(fn, values)
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, [scalar(v) for v in values], rtol=1e-14)


@pytest.mark.parametrize(
    ("fn", "dtype", "a", "b", "expected"),
    [
        ("div", "int32", [7, -7, 7, -7, 6], [2, 2, -2, -2, 3], [3, -3, -3, 3, 2]),
        ("div", "uint8", [7, 250], [2, 3], [3, 83]),
        ("div", "float32", [1, -1, 0], [0, 0, 0], [INF, -INF, NAN]),
        ("mod", "int32", [7, -7, 7, -7], [3, 3, -3, -3], [1, 2, -2, -1]),
        ("fmod", "int32", [7, -7, 7, -7], [3, 3, -3, -3], [1, -1, 1, -1]),
        ("fmod", "float32", [5.5, -5.5], [2, 2], [1.5, -1.5]),
        ("add", "int8", [127, 1], [1, 1], [-128, 2]),
        ("mul", "int64", [2**40], [2**10], [2**50]),
        ("max", "float32", [1, NAN, 2], [3, 1, NAN], [3, NAN, NAN]),
        ("min", "int32", [1, 5], [3, 4], [1, 4]),
        ("pow", "float32", [2, 4, -2], [3, 0.5, 2], [8, 2, 4]),
        ("pow", "int32", [2, -1, -1, 1, 3], [3, -3, -2, -5, -1], [8, -1, 1, 1, 0]),
        ("and", "bool", [True, True], [False, True], [False, True]),
        ("or", "bool", [False, True], [False, True], [False, True]),
        ("xor", "bool", [False, True], [True, True], [True, False]),
        ("bitand", "uint8", [12], [10], [8]),
        ("bitor", "uint8", [12], [10], [14]),
        ("bitxor", "uint8", [12], [10], [6]),
        ("shl", "uint8", [129], [1], [2]),
        ("shr", "uint8", [129], [1], [64]),
        ("eq", "float32", [1, NAN], [1, NAN], [True, False]),
        ("ne", "int32", [1, 2], [1, 1], [False, True]),
        ("lt", "float32", [1, NAN], [2, 1], [True, False]),
        ("le", "int32", [1, 2], [1, 1], [True, False]),
        ("gt", "int32", [1, 2], [1, 1], [False, True]),
        ("ge", "float32", [1, 0], [1, 1], [True, False]),
    ],
)
def test_binary(fn: str, dtype: str, a: list, b: list, expected: list) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run(fn, a, b, dtypes=(dtype, dtype))
    np.testing.assert_array_equal(result, expected)
    if dtype != "float32" and fn not in COMPARE:
        assert result.dtype == dtype


@pytest.mark.parametrize(
    ("dtypes", "base", "exponent", "expected"),
    [(("float32", "int64"), [2, 0.5], [3, -1], [8, 2]), (("int32", "float32"), [9, 2], [0.5, -1], [3, 0])],
)
def test_pow_has_the_type_of_its_base(dtypes, base, exponent, expected) -> None:
    result = run("pow", base, exponent, dtypes=dtypes)
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == (np.float64 if dtypes[0] == "float32" else np.int32)


def test_tests() -> None:
    values = [1, NAN, INF, -INF]
    np.testing.assert_array_equal(run("isnan", values), [False, True, False, False])
    np.testing.assert_array_equal(run("isinf", values), [False, False, True, True])
    np.testing.assert_array_equal(run("isposinf", values), [False, False, True, False])
    np.testing.assert_array_equal(run("isneginf", values), [False, False, False, True])


def test_logic_of_one_operand() -> None:
    np.testing.assert_array_equal(run("not", [True, False], dtypes=("bool",)), [False, True])
    np.testing.assert_array_equal(run("bitnot", [0, 5], dtypes=("int8",)), [-1, -6])


@pytest.mark.parametrize("fn", ["neg", "abs", "sign", "floor", "ceil", "round"])
def test_integers_stay_integers(fn: str) -> None:
    assert run(fn, [-3, 4], dtypes=("int8",)).dtype == np.int8


@pytest.mark.parametrize(
    ("source", "target", "values", "expected"),
    [
        ("float32", "int32", [1.9, -1.9], [1, -1]),
        ("float32", "uint8", [200.7, 3], [200, 3]),
        ("float32", "bool", [0, 0.5, NAN], [False, True, True]),
        ("int32", "bool", [0, 2], [False, True]),
        ("int32", "int8", [130, -1], [-126, -1]),
        ("int64", "float32", [2**24 + 1], [2**24]),
        ("float32", "float16", [2049, 1e6], [2048, INF]),
        ("float64", "float32", [0.1], [float(np.float32(0.1))]),
        ("bool", "float32", [True, False], [1, 0]),
    ],
)
def test_cast(source: str, target: str, values: list, expected: list) -> None:
    result = evaluate_expr(cast(arg(0, source), target), [np.asarray(values, source)])
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == (np.float64 if target.startswith("float") else np.dtype(target))


def test_where_and_constants() -> None:
    expr = apply("where", apply("lt", arg(0, "float32"), const(0, "float32")), const(0.1, "float32"), arg(0, "float32"))
    result = evaluate_expr(expr, [np.array([-1, 2], np.float32)])
    np.testing.assert_array_equal(result, [float(np.float32(0.1)), 2])


def test_sigmoid_and_exp_of_large_numbers_are_quiet() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(run("sigmoid", [-2000, 2000]), [0, 1])
        np.testing.assert_array_equal(run("exp", [2000]), [INF])


def test_shared_subtrees_are_computed_once() -> None:
    """x ← x + x, 60 times over: 2⁶⁰ leaves as a tree."""
    expr = arg(0, "float64")
    for _ in range(60):
        expr = Apply(expr.dtype, "add", (expr, expr))
    assert evaluate_expr(expr, [np.ones(1)])[0] == 2.0**60
