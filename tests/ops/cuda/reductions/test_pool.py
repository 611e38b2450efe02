"""Pools as CUDA kernels, run on the host, against their NumPy definition."""

import ml_dtypes
import numpy as np
import pytest

from brickrt.ops.operators.pool import Pool
from brickrt.ops.types import Boxes
from tests.support.cuda.host_kernels import expected, needs_compiler, run_on_host
from tests.support.graphs.random_boxes import check_random_boxes

pytestmark = needs_compiler
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def pool(kind, kernel, strides=None, dilations=None, pads=None, pads_end=None, **more):
    ones, zeros = (1,) * len(kernel), (0,) * len(kernel)
    pads = pads or zeros
    return Pool(kind, kernel, strides or ones, dilations or ones, pads, pads if pads_end is None else pads_end, **more)


CASES = {
    "max3": ((2, 5, 9, 11), pool("max", (3, 3), (2, 2), pads=(1, 1))),
    "max-ceil": ((1, 16, 10, 7), pool("max", (3, 2), (2, 3), ceil=True)),
    "max-dilated": ((1, 8, 12, 13), pool("max", (3, 3), (1, 2), (2, 3), (2, 1), (1, 3))),
    "average": ((2, 12, 7, 9), pool("average", (3, 3), pads=(1, 1))),
    "average-pad": ((2, 12, 7, 9), pool("average", (3, 3), (2, 2), pads=(1, 1), count_include_pad=True, ceil=True)),
    "average-dilated": ((1, 3, 9, 8), pool("average", (2, 3), (2, 1), (3, 2), (1, 2), (2, 1), ceil=True)),
    "average-whole": ((2, 9, 7, 7), pool("average", (7, 7))),
    "lp1": ((1, 4, 6, 5), pool("lp", (2, 2), (2, 1), pads=(1, 0), p=1)),
    "lp2": ((1, 20, 6, 5), pool("lp", (3, 2), (1, 1), pads=(1, 1), p=2)),
    "lp3": ((1, 4, 6, 5), pool("lp", (2, 2), (2, 2), p=3)),
    "line": ((3, 7, 19), pool("max", (4,), (3,), pads=(1,), pads_end=(2,))),
    "volume": ((1, 6, 5, 6, 7), pool("average", (2, 3, 2), (1, 2, 2), pads=(1, 1, 0), count_include_pad=True)),
    "volume-max": ((2, 4, 5, 4, 6), pool("max", (3, 3, 3), (2, 2, 2), pads=(1, 1, 1))),
    "one": ((1, 1, 1, 1), pool("max", (1, 1))),
    "channel": ((1, 1, 8, 8), pool("average", (2, 2), (2, 2))),
}


def values(shape, dtype, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 8).astype(dtype)


def tolerance(dtype):
    return {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5}.get(np.dtype(dtype).name, 1e-12)


def check(op, x, layout, boxes=None, **how):
    result = run_on_host(op, [x], [layout, layout], boxes=boxes, **how)
    wide = [a.astype(np.float64) for a in (result, expected(op, [x]))]
    np.testing.assert_allclose(*wide, rtol=tolerance(x.dtype), atol=tolerance(x.dtype))


@pytest.mark.parametrize("layout", ["plain", "last"])
@pytest.mark.parametrize("case", CASES)
def test_pools(case, layout):
    shape, op = CASES[case]
    check(op, values(shape, np.float32), layout)


@pytest.mark.parametrize("layout", ["plain", "last"])
@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16, np.float64, np.int8, np.uint16, np.int64, bool], ids=str)
def test_types(dtype, layout):
    x = values((2, 24, 9, 8), np.float32)
    check(pool("max", (3, 3), (2, 2), pads=(1, 1)), x.clip(0, 60).astype(dtype), layout)


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16, np.float64], ids=str)
def test_types_of_averages(dtype):
    check(pool("average", (3, 3), (2, 2), pads=(1, 1)), values((2, 19, 9, 8), dtype), "last")


@pytest.mark.parametrize("layout", ["plain", "last"])
def test_boxes_cover_the_output_in_uneven_parts_and_some_are_empty(layout):
    op, x = pool("max", (3, 3), (2, 2), pads=(1, 1)), values((2, 40, 33, 21), np.float32)
    _, c, h, w = expected(op, [x]).shape
    cuts = [[0, 1, 2], [0, 7, 8, 8, 30, c], [0, 5, h], [0, 4, 9, w]]
    lo, hi = (np.array(np.meshgrid(*ends)).reshape(4, -1).T for ends in ([t[:-1] for t in cuts], [t[1:] for t in cuts]))
    check(op, x, layout, Boxes(lo, hi), threads=96, blocks=3)


def test_what_no_box_covers_stays():
    op, x = pool("max", (2, 2)), values((1, 16, 6, 6), np.float32)
    result = run_on_host(op, [x], ["last", "last"], boxes=Boxes.one((0, 3, 1, 2), (1, 14, 3, 4)))
    whole = expected(op, [x])
    assert (result == np.where(result == 77, result, whole)).all()
    assert (result != 77).sum() == 11 * 2 * 2


@pytest.mark.parametrize("kind", ["max", "average"])
def test_nan_and_infinity_go_through(kind):
    x = values((1, 8, 6, 6), np.float32)
    x[0, 3, 2, 2], x[0, 4, 1, 1], x[0, 5, 5, 5] = np.nan, np.inf, -np.inf
    check(pool(kind, (2, 2)), x, "last")


def test_a_window_of_padding_alone():
    x = values((1, 4, 3, 3), np.float32)
    check(pool("max", (1, 1), (2, 2), pads=(1, 1), pads_end=(1, 1)), x, "last")
    check(pool("average", (1, 1), (2, 2), pads=(1, 1), pads_end=(1, 1)), x, "last")


def test_integers_have_no_averages():
    with pytest.raises(LookupError, match="average pools of int8"):
        run_on_host(pool("average", (2, 2)), [values((1, 2, 4, 4), np.int8)])


@pytest.mark.parametrize("layout", ["plain", "last"])
def test_random_boxes(layout):
    op = pool("average", (3, 2), (2, 1), (1, 2), (1, 1), ceil=True)
    check_random_boxes(op, [values((2, 37, 19, 23), np.float32)], [layout, layout])
