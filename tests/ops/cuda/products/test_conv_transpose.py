"""Transposed convolutions as CUDA kernels, run on the host, against their NumPy definition."""

from dataclasses import replace

import numpy as np
import pytest

from brickrt.ops.operators.conv import ConvTranspose
from tests.support.cuda.cases.product_cases import ProductCase, check, conv, silu, some_boxes, values
from tests.support.cuda.host_kernels import expected, needs_compiler

pytestmark = needs_compiler


def transpose(kernel, strides=None, dilations=None, pads=None, output_padding=None, groups=1, **more):
    c = conv(kernel, strides, dilations, pads)
    extra = output_padding or (0,) * len(kernel)
    return ConvTranspose(kernel, c.strides, c.dilations, c.pads, c.pads, extra, groups, **more)


def operands(op, x, channels, dtype=np.float32, extras=()):
    shapes = [x, (x[1], channels // op.groups, *op.kernel), *[(channels,)] * op.bias, *extras]
    return [values(shape, dtype, seed) for seed, shape in enumerate(shapes)]


CASES = {
    "doubled": ProductCase((2, 8, 5, 6), 16, transpose((2, 2), (2, 2), bias=True)),
    "overlapping": ProductCase((1, 16, 5, 4), 12, transpose((3, 4), (2, 2), None, (1, 1), (1, 0))),
    "odd": ProductCase((1, 5, 4, 5), 7, transpose((3, 2), (3, 1), (2, 3), (1, 0), (1, 0))),
    "shared factor": ProductCase((2, 6, 9), 10, transpose((4,), (4,), (6,), (3,), groups=2)),
    "gaps": ProductCase((1, 4, 6, 3), 8, transpose((1, 2), (3, 4))),
    "volume": ProductCase((1, 8, 3, 4, 3), 8, transpose((2, 3, 2), (2, 1, 3), None, (0, 1, 0), groups=2)),
    "plain": ProductCase((1, 6, 4, 5), 9, transpose((3, 3), (2, 2), None, (1, 1), groups=3), {"layout": "plain"}),
    "variable": ProductCase(
        (1, 6, 4, 5), 10, transpose((3, 3), (2, 2), (1, 3), groups=2, bias=True), {"packed": False}
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_transposed_convolutions(case):
    c = CASES[case]
    check(c.op, operands(c.op, c.x, c.channels), **c.more)


@pytest.mark.parametrize("case", ["overlapping", "odd", "volume"])
def test_boxes_cover_the_output_in_uneven_parts(case):
    c = CASES[case]
    arrays = operands(c.op, c.x, c.channels)
    check(c.op, arrays, boxes=some_boxes(expected(c.op, arrays).shape))


@pytest.mark.parametrize("case", ["overlapping", "odd"])
@pytest.mark.parametrize("dtype", ["tf32", np.float16], ids=str)
def test_on_tensor_cores(case, dtype):
    c, tf32 = CASES[case], dtype == "tf32"
    arrays = operands(c.op, c.x, c.channels, np.float32 if tf32 else dtype)
    check(c.op, arrays, precision="tf32" if tf32 else "fp32")


def test_epilogue():
    c = CASES["overlapping"]
    op = replace(c.op, bias=True, epilogue=silu(np.float32))
    shape = expected(c.op, operands(c.op, c.x, c.channels)).shape
    check(op, operands(op, c.x, c.channels, extras=[(12, 1, 1), shape]), boxes=some_boxes(shape, 1, 1))
