"""Reductions as CUDA kernels, run on the host, against their NumPy definition."""

import ml_dtypes
import numpy as np
import pytest

from brickrt.ops.expr import apply, arg, cast, const
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.types import Boxes
from tests.support.cuda.host_kernels import expected, needs_compiler, run_on_host
from tests.support.graphs.random_boxes import check_random_boxes

pytestmark = needs_compiler
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5}

# shape, axes, keepdims, layout of the input, layout of the output
CASES = [
    ((2, 24, 7, 9), (2, 3), True, "last", "last"),
    ((2, 24, 7, 9), (2, 3), True, "plain", "plain"),
    ((2, 3, 7, 9), (2, 3), True, "last", "plain"),
    ((1, 200, 5, 5), (2, 3), False, "last", "plain"),
    ((2, 24, 7, 9), (1,), True, "plain", "plain"),
    ((2, 5, 7, 9), (1,), False, "last", "plain"),
    ((3, 8, 5, 4), (0, 2, 3), True, "plain", "plain"),
    ((3, 8, 5, 4), (0, 2, 3), False, "last", "plain"),
    ((3, 8, 5, 4), (1, 3), True, "last", "last"),
    ((2, 3, 4, 5, 6), (1, 3), False, "plain", "plain"),
    ((7, 1000), (1,), True, "plain", "plain"),
    ((300, 33), (1,), False, "plain", "plain"),
    ((5000,), (0,), True, "plain", "plain"),
    ((1, 1, 1), (1,), True, "plain", "plain"),
    ((4, 1, 6), (1,), False, "plain", "plain"),
    ((2, 40, 1, 1), (2, 3), True, "last", "last"),
    ((2, 6, 5, 3, 4), (2, 3, 4), True, "last", "last"),
]


def values(shape, dtype, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 4).astype(dtype)


def check(op, arrays, layouts=None, boxes=None, **how):
    result = run_on_host(op, arrays, layouts, boxes=boxes, **how)
    tolerance = TOLERANCE.get(result.dtype.name, 1e-12)
    wide = [a.astype(np.float64) for a in (result, expected(op, arrays))]
    np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance * max(1.0, np.abs(arrays[0]).astype(float).max()))
    return result


@pytest.mark.parametrize("case", CASES, ids=str)
def test_axes_and_layouts(case):
    shape, axes, keepdims, inner, outer = case
    check(Reduce("sum", axes, keepdims), [values(shape, F32)], [inner, outer])


@pytest.mark.parametrize("combine", ["prod", "max", "min"])
@pytest.mark.parametrize("layout", ["plain", "last"])
def test_combinations(combine, layout):
    check(Reduce(combine, (2, 3), True), [values((2, 9, 4, 5), F32) / 4], [layout, layout])


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16, np.float64, np.int8, np.uint16, np.int64, bool], ids=str)
@pytest.mark.parametrize("axes, combine", [((2, 3), "sum"), ((1,), "max")], ids=["across", "along"])
def test_types(dtype, axes, combine):
    x = values((2, 24, 5, 6), np.float32)
    x = x.clip(0, 60).astype(dtype) if np.dtype(dtype).kind in "ub" else x.astype(dtype)
    check(Reduce("min" if x.dtype == bool and combine == "sum" else combine, axes, True), [x], ["last", "last"])


@pytest.mark.parametrize("dtype", [np.int8, np.int64], ids=str)
def test_integers_wrap(dtype):
    x = np.random.default_rng(1).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (3, 50), dtype)
    for combine in ("sum", "prod"):
        op = Reduce(combine, (1,), False)
        assert (run_on_host(op, [x]) == expected(op, [x])).all()


@pytest.mark.parametrize("layouts", [["last", "plain", "plain", "last"], ["plain", "plain", "plain", "plain"]], ids=str)
def test_expressions_over_several_operands(layouts):
    """sqrt of the mean of (x - m)² · w, with a mean per sample and channel, and weights per channel in float16."""
    x, m = values((2, 24, 5, 6), F32), values((2, 24, 1, 1), F32, 1)
    w = np.abs(values((24, 1, 1), np.float16, 2))
    difference = apply("sub", arg(0, F32), arg(1, F32))
    pre = apply("mul", apply("mul", difference, difference), cast(arg(2, np.float16), F32))
    for axes in ((2, 3), (1,)):
        post = apply("sqrt", apply("div", arg(0, F32), const(30, F32)))
        check(Reduce("sum", axes, True, pre, post), [x, m, w], layouts)


def test_the_type_may_change_before_and_after():
    x = values((6, 70), np.float16)
    pre, post = cast(arg(0, np.float16), np.float64), cast(arg(0, np.float64), np.int32)
    check(Reduce("sum", (1,), False, pre, post), [x])
    check(Reduce("sum", (0,), False, pre, post), [x])


@pytest.mark.parametrize("combine", ["sum", "max", "min"])
@pytest.mark.parametrize("axes", [(0,), (1,)])
def test_nan_and_infinity_go_through(combine, axes):
    x = values((70, 40), F32)
    x[3, 5], x[8, 9], x[11, 12], x[13, 14], x[13, 15] = np.nan, np.inf, -np.inf, np.inf, -np.inf
    check(Reduce(combine, axes, True), [x])


@pytest.mark.parametrize("shape, axes", [((1 << 20,), (0,)), ((1 << 19, 2), (0,)), ((1 << 18, 4, 1, 1), (0,))], ids=str)
def test_a_million_elements_to_five_digits(shape, axes):
    x = np.random.default_rng(0).random(shape).astype(F32) + 1
    op = Reduce("sum", axes, False)
    np.testing.assert_allclose(run_on_host(op, [x]), expected(op, [x]), rtol=1e-6)


@pytest.mark.parametrize("layout", ["plain", "last"])
@pytest.mark.parametrize("axes", [(2, 3), (1,), (0, 2)], ids=str)
def test_boxes_cut_the_output_anywhere_and_may_be_empty(layout, axes):
    x = values((2, 40, 9, 11), F32)
    op = Reduce("sum", axes, True)
    shape = expected(op, [x]).shape
    cuts = [sorted({0, e // 5, e // 2, e // 2 + 1, e}) for e in shape]
    lo, hi = (np.array(np.meshgrid(*ends)).reshape(4, -1).T for ends in ([t[:-1] for t in cuts], [t[1:] for t in cuts]))
    lo, hi = np.concatenate([lo, lo[:1]]), np.concatenate([hi, lo[:1]])
    check(op, [x], [layout, layout], Boxes(lo, hi), threads=96, blocks=3)


def test_what_no_box_covers_stays():
    op, x = Reduce("max", (2, 3), True), values((1, 16, 6, 6), F32)
    result = run_on_host(op, [x], ["last", "last"], boxes=Boxes.one((0, 3, 0, 0), (1, 14, 1, 1)))
    assert (result == np.where(result == 77, result, expected(op, [x]))).all()
    assert (result != 77).sum() == 11


def test_any_order_of_boxes_gives_the_same_bits():
    op, x = Reduce("sum", (2, 3), True), values((1, 64, 31, 17), F32)
    boxes = Boxes(
        np.array([[0, k, 0, 0] for k in range(0, 64, 16)]), np.array([[1, k + 16, 1, 1] for k in range(0, 64, 16)])
    )
    first = run_on_host(op, [x], ["last", "last"], boxes=boxes)
    again = run_on_host(op, [x], ["last", "last"], boxes=boxes.take(np.array([2, 0, 3, 1])), blocks=3)
    assert (first == again).all()


@pytest.mark.parametrize("layout", ["plain", "last"])
@pytest.mark.parametrize("axes", [(2,), (1,), (1, 3)], ids=str)
def test_random_boxes(layout, axes):
    check_random_boxes(Reduce("sum", axes, True), [values((3, 36, 9, 11), F32)], [layout, layout])
