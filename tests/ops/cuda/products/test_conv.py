"""Convolutions as CUDA kernels, run on the host, against their NumPy definition."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brickrt.ops.cuda.kernel import THREADS
from brickrt.ops.expr import apply, arg, cast, const
from brickrt.ops.types import Boxes
from tests.support.cuda.cases.product_cases import (
    BFLOAT16,
    ProductCase,
    check,
    close,
    conv,
    gate,
    operands,
    silu,
    some_boxes,
    values,
)
from tests.support.cuda.host_kernels import expected, needs_compiler, run_on_host

pytestmark = needs_compiler


CASES = {
    "even": ProductCase((2, 8, 9, 7), 16, conv((3, 3), pads=(1, 1), bias=True)),
    "odd": ProductCase((1, 3, 9, 7), 5, conv((3, 2), (2, 1), (1, 2), (0, 2), (1, 0))),
    "line": ProductCase((3, 17, 23), 12, conv((5,), (2,), (2,), (4,), (1,), bias=True)),
    "volume": ProductCase((1, 16, 4, 5, 6), 24, conv((2, 3, 1), (1, 2, 1), pads=(1, 1, 0), groups=2)),
    "groups": ProductCase((1, 12, 5, 6), 36, conv((1, 3), pads=(0, 1), groups=4)),
    "far": ProductCase((1, 16, 6, 7), 8, conv((3, 3), dilations=(6, 5), pads=(6, 5))),
    "plain": ProductCase((2, 12, 7, 8), 20, conv((3, 3), pads=(1, 1), bias=True), {"layout": "plain"}),
    "variable": ProductCase((1, 6, 7, 8), 10, conv((3, 3), pads=(1, 1), groups=2, bias=True), {"packed": False}),
    "depthwise": ProductCase((1, 24, 9, 11), 24, conv((3, 3), pads=(1, 1), groups=24, bias=True)),
    "strided depthwise": ProductCase((2, 20, 9, 10), 20, conv((5, 5), (2, 2), (1, 1), (2, 1), (1, 2), 20)),
    "odd depthwise": ProductCase((1, 7, 6, 9), 21, conv((3, 4), (1, 3), (2, 2), (1, 3), groups=7)),
    "plain depthwise": ProductCase(
        (1, 9, 6, 7), 9, conv((3, 3), pads=(1, 1), groups=9), {"layout": "plain", "packed": False}
    ),
    "wide depthwise": ProductCase((2, 8, 40), 8, conv((11,), pads=(5,), groups=8)),
    "depthwise volume": ProductCase((1, 16, 4, 5, 6), 16, conv((3, 2, 3), (1, 2, 1), pads=(1, 0, 1), groups=16)),
    "few per group": ProductCase((1, 16, 6, 7), 32, conv((3, 3), pads=(1, 1), groups=4, bias=True)),
    "point": ProductCase((1, 64, 12, 12), 128, conv((1, 1))),
}


@pytest.mark.parametrize("case", CASES)
def test_convolutions(case):
    c = CASES[case]
    check(c.op, operands(c.op, c.x, c.channels, np.float32), **c.more)


ON_TENSOR_CORES = [
    ("even", "tf32"),
    ("odd", "tf32"),
    ("even", np.float16),
    ("odd", np.float16),
    ("volume", BFLOAT16),
    ("odd", BFLOAT16),
    ("depthwise", np.float16),
]


@pytest.mark.parametrize(("case", "dtype"), ON_TENSOR_CORES, ids=str)
def test_on_tensor_cores(case, dtype):
    c, tf32 = CASES[case], dtype == "tf32"
    arrays = operands(c.op, c.x, c.channels, np.float32 if tf32 else dtype)
    check(c.op, arrays, precision="tf32" if tf32 else "fp32", **c.more)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8], ids=str)
def test_other_types(dtype):
    c = CASES["even"]
    check(c.op, operands(c.op, c.x, c.channels, dtype), **c.more)


@pytest.mark.parametrize("case", ["odd", "volume", "far", "strided depthwise", "few per group"])
def test_boxes_cover_the_output_in_uneven_parts(case):
    c = CASES[case]
    arrays = operands(c.op, c.x, c.channels, np.float32)
    check(c.op, arrays, boxes=some_boxes(expected(c.op, arrays).shape))


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=str)
@pytest.mark.parametrize("channels", [24, 7])
def test_epilogues(dtype, channels):
    dtype = np.dtype(dtype)
    op = conv((3, 3), pads=(1, 1), bias=True, epilogue=silu(dtype))
    arrays = operands(op, (2, 8, 6, 5), channels, dtype, [(channels, 1, 1), (2, channels, 6, 5)])
    check(op, arrays, boxes=some_boxes((2, channels, 6, 5), 1, 1))


GATES = {
    "two": ProductCase((1, 8, 5, 6), 40, conv((1, 1), bias=True, epilogue=gate(2), parts=2)),
    "odd": ProductCase((1, 6, 5, 6), 26, conv((3, 1), bias=True, epilogue=gate(2), parts=2), {"packed": False}),
    "narrow": ProductCase((1, 16, 9, 9), 8, conv((1, 1), epilogue=gate(4), parts=4)),
    "three": ProductCase((1, 8, 5, 6), 36, conv((1, 1), epilogue=gate(3), parts=3)),
    "depthwise": ProductCase((1, 48, 5, 6), 48, conv((3, 3), None, None, (1, 1), None, 48, True, gate(2), 2)),
    "groups": ProductCase((1, 8, 5, 6), 40, conv((1, 2), None, None, None, None, 4, True, gate(2), 2)),
}


@pytest.mark.parametrize("case", GATES)
def test_gates(case):
    c = GATES[case]
    arrays = operands(c.op, c.x, c.channels, np.float32)
    check(c.op, arrays, boxes=some_boxes(expected(c.op, arrays).shape, 2, 1), **c.more)


def test_epilogue_of_other_types():
    """A mask of another type, an operand that all channels share, and a result of a third type."""
    x = arg(0, np.float32)
    bent = apply("where", arg(1, bool), x, apply("mul", x, const(0.25, np.float32)))
    op = conv((1, 1), epilogue=cast(apply("mul", bent, cast(arg(2, np.float16), np.float32)), np.int32))
    arrays = operands(op, (1, 8, 6, 5), 12, np.float32)
    mask = np.random.default_rng(7).random((1, 12, 6, 5)) < 0.5
    check(op, [arrays[0] * 100, arrays[1], mask, values((6, 5), np.float16)])


def test_what_no_box_covers_stays():
    op = conv((3, 3), pads=(1, 1))
    arrays = operands(op, (1, 8, 6, 6), 16, np.float32)
    box = Boxes.one((0, 3, 1, 2), (1, 14, 3, 4))
    result = run_on_host(op, arrays, ["last", "plain", "last"], [False, True], box, threads=THREADS)
    assert (result != 77).sum() == 11 * 2 * 2
    inside = box.slices()
    close(result[inside], expected(op, arrays)[inside], 1e-5)


@st.composite
def cases(draw):
    """Any convolution of 1 to 3 dimensions, its operands small."""
    dims, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2, 4]))

    def each(lo, hi):
        return tuple(draw(st.integers(lo, hi)) for _ in range(dims))

    kernel, dilations, pads, ends = each(1, 3), each(1, 2), each(0, 3), each(0, 3)
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations)]
    extents = [max(e, span) for e, span in zip(each(1, 7), spans)]
    x = (draw(st.integers(1, 2)), groups * draw(st.integers(1, 9)), *extents)
    return ProductCase(
        x,
        groups * draw(st.integers(1, 19)),
        conv(kernel, each(1, 3), dilations, pads, ends, groups, draw(st.booleans())),
    )


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(cases(), st.sampled_from(["fp32", "tf32"]), st.sampled_from(["last", "plain"]), st.integers(0, 99))
def test_any_convolution(case, precision, layout, seed):
    arrays = operands(case.op, case.x, case.channels, np.float32)
    check(case.op, arrays, layout, boxes=some_boxes(expected(case.op, arrays).shape, seed, 1), precision=precision)
