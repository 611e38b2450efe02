"""Softmax and norms as CUDA kernels, run on the host, against their NumPy definition."""

import ml_dtypes
import numpy as np
import pytest

from brickrt.ops.expr import apply, arg, cast, const
from brickrt.ops.operators.rowwise import Rowwise, Step
from brickrt.ops.types import Boxes
from tests.support.cuda.cases.row_cases import norm, softmax
from tests.support.cuda.host_kernels import expected, needs_compiler, run_on_host
from tests.support.graphs.random_boxes import check_random_boxes

pytestmark = needs_compiler
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5}


def values(shape, dtype=F32, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 3 + 1).astype(dtype)


def check(op, arrays, layout="plain", boxes=None, **how):
    result = run_on_host(op, arrays, [layout] * (len(arrays) + 1), boxes=boxes, **how)
    tolerance = TOLERANCE.get(result.dtype.name, 1e-12)
    wide = [a.astype(np.float64) for a in (result, expected(op, arrays))]
    np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance * 4)


# shape, axes, layout: rows of a thread, of a few lanes, of a warp, of the block (kept in shared memory, or swept again)
SOFTMAX = [
    ((2, 3, 5, 7), (3,), "plain"),
    ((40, 8), (1,), "plain"),
    ((4, 6, 50, 197), (3,), "plain"),
    ((3, 1000), (1,), "plain"),
    ((300, 64), (1,), "plain"),
    ((20, 3), (1,), "plain"),
    ((2, 9000), (1,), "plain"),
    ((2, 19, 6, 5), (1,), "plain"),
    ((2, 20, 6, 5), (1,), "last"),
    ((2, 19, 6, 5), (1,), "last"),
    ((1, 6, 4, 5), (2, 3), "last"),
    ((2, 6, 4, 5), (1, 2, 3), "plain"),
    ((1, 1, 1), (2,), "plain"),
    ((7,), (0,), "plain"),
    ((2, 3, 4, 6), (1, 3), "plain"),
]


@pytest.mark.parametrize("case", SOFTMAX, ids=str)
def test_softmax(case):
    shape, axes, layout = case
    check(softmax(axes), [values(shape)], layout)


@pytest.mark.parametrize("shape, axes, weights, layout", [
    ((5, 50, 384), (2,), (384,), "plain"),
    ((2, 32, 9, 7), (1,), (1, 32, 1, 1), "last"),
    ((2, 32, 9, 7), (1,), (1, 32, 1, 1), "plain"),
    ((2, 24, 9, 7), (2, 3), (24, 1, 1), "last"),
    ((2, 24, 9, 7), (2, 3), (24, 1, 1), "plain"),
    ((3, 5, 6, 8), (1, 2, 3), (5, 6, 8), "last"),
    ((2, 4, 3, 5, 6), (2, 3, 4), (1, 4, 1, 1, 1), "last"),
    ((4, 3000), (1,), (3000,), "plain"),
], ids=str)  # fmt: skip
def test_norms(shape, axes, weights, layout):
    count = int(np.prod([shape[d] for d in axes]))
    check(norm(axes, count), [values(shape), values(weights, seed=1), values(weights, seed=2)], layout)


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16], ids=str)
@pytest.mark.parametrize("shape, axes, layout", [
    ((9, 197), (1,), "plain"), ((2, 64, 5, 7), (1,), "last"), ((2, 24, 5, 7), (2, 3), "last"),
], ids=str)  # fmt: skip
def test_halves(dtype, shape, axes, layout):
    check(softmax(axes, np.dtype(dtype)), [values(shape, dtype)], layout)
    count = int(np.prod([shape[d] for d in axes]))
    check(norm(axes, count, 0, np.dtype(dtype)), [values(shape, dtype)], layout)


def test_a_mask_is_added_and_kept_with_the_row():
    """softmax(x · 0.125 + mask), the mask broadcast over heads."""
    scores = apply("add", apply("mul", arg(0, F32), const(0.125, F32)), arg(1, F32))
    power = apply("exp", apply("sub", scores, arg(2, F32)))
    op = Rowwise((3,), (Step("max", scores), Step("sum", power)), apply("div", power, arg(3, F32)))
    mask = np.where(np.random.default_rng(3).random((2, 1, 9, 40)) < 0.3, -1e9, 0).astype(F32)
    check(op, [values((2, 4, 9, 40)), mask])


def test_results_of_integers():
    """x - least, as float64."""
    i64 = np.dtype(np.int64)
    op = Rowwise((1,), (Step("min", arg(0, i64)),), cast(apply("sub", arg(0, i64), arg(1, i64)), np.float64))
    check(op, [np.random.default_rng(0).integers(-50, 50, (5, 77))])


@pytest.mark.parametrize("op, shape, layout", [
    (softmax((1,)), (2, 20, 7, 9), "last"),
    (softmax((1,)), (2, 20, 7, 9), "plain"),
    (norm((2, 3), 63, 0), (2, 20, 7, 9), "last"),
    (softmax((3,)), (2, 5, 7, 300), "plain"),
], ids=["channels-last", "channels", "spatial", "rows"])  # fmt: skip
def test_boxes_cut_the_output_anywhere_even_rows(op, shape, layout):
    cuts = [sorted({0, e // 5, e // 2, e // 2 + 1, e}) for e in shape]
    lo, hi = (np.array(np.meshgrid(*ends)).reshape(4, -1).T for ends in ([t[:-1] for t in cuts], [t[1:] for t in cuts]))
    lo, hi = np.concatenate([lo, lo[:1]]), np.concatenate([hi, lo[:1]])
    check(op, [values(shape)], layout, Boxes(lo, hi), threads=96, blocks=3)


def test_what_no_box_covers_stays():
    op, x = softmax((1,)), values((6, 20))
    result = run_on_host(op, [x], boxes=Boxes.one((1, 3), (4, 14)))
    assert (result != 77).sum() == 33
    np.testing.assert_allclose(result[1:4, 3:14], expected(op, [x])[1:4, 3:14], rtol=1e-5)


def test_infinite_masks_and_nan():
    x = values((4, 40))
    x[0, 3:9], x[1, :], x[2, 7] = -np.inf, -np.inf, np.nan
    check(softmax((1,)), [x])
    check(softmax((0,)), [x])


@pytest.mark.parametrize("layout", ["plain", "last"])
@pytest.mark.parametrize("axes", [(3,), (1,), (1, 2)], ids=str)
def test_random_boxes(layout, axes):
    check_random_boxes(softmax(axes), [values((3, 20, 9, 11))], [layout, layout])
