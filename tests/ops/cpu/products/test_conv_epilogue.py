"""What follows a convolution or a matrix product inside its kernel: operands of every shape that broadcasts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.products.conv import ConvKernel
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.conv_cases import ConvCase, conv, middle, transposed
from tests.support.cpu.harness import AVX2, HOST, check

F32 = np.dtype(np.float32)
ISAS = [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")]
PRODUCT = arg(0, F32)
RELU = apply("max", PRODUCT, const(0, F32))
SUM = apply("max", apply("add", PRODUCT, arg(1, F32)), const(0, F32))
SWISH = apply("add", apply("mul", PRODUCT, apply("sigmoid", PRODUCT)), arg(1, F32))
AFFINE = apply("add", apply("mul", PRODUCT, arg(1, F32)), arg(2, F32))

CONVS = {
    "window": ConvCase(conv((2, 3), pads=(1, 1), bias=True), (5, 3, 3), 19, n=2),
    "pointwise": ConvCase(conv((1, 1)), (5, 3, 4), 19, n=2),
    "depthwise": ConvCase(conv((3, 1), pads=(1, 0), groups=19), (19, 3, 4), 19, n=2),
    "transposed": ConvCase(transposed((2, 2), (2, 2)), (5, 2, 2), 19, n=2),
}


def check_epilogue(case, expr, extras, isa, constant=True, scratch=True):
    """`extras`: shapes, where 0 stands for the output's extent."""
    arrays, v = case.arrays(), isa.lanes
    out = case.op.infer([TensorType(a.shape, a.dtype) for a in arrays]).shape
    rng = np.random.default_rng(1)
    shapes = [tuple(out[len(out) - len(s) + k] if e == 0 else e for k, e in enumerate(s)) for s in extras]
    more = [rng.standard_normal(shape).astype(F32) for shape in shapes]
    blocks = [v if len(s) == len(out) and s[1] > 1 else 1 for s in shapes]
    packed = [False, *[True] * (len(arrays) - 1), *[constant] * len(more)]
    check(
        replace(case.op, epilogue=expr),
        [*arrays, *more],
        isa,
        blocks=[*case.blocks(v), *blocks],
        out_block=v,
        packed=packed,
        boxes=[Boxes.whole(out), middle(out, v)],
        rtol=3e-5,
        atol=3e-5,
        scratch=scratch,
    )


def test_a_residual_of_channels_in_chunks():
    """It is added once, to all sums."""
    check_epilogue(ConvCase(conv((1, 40), pads=(0, 20), bias=True), (110, 1, 3), 19), SUM, [(0, 0, 0, 0)], HOST)


@pytest.mark.parametrize("name", CONVS)
def test_relu(name):
    check_epilogue(CONVS[name], RELU, [], HOST)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", CONVS)
def test_residual(name, isa):
    check_epilogue(CONVS[name], SUM, [(0, 0, 0, 0)], isa, constant=False)


@pytest.mark.parametrize("name", CONVS)
def test_scale_and_shift_per_channel(name):
    check_epilogue(CONVS[name], AFFINE, [(1, 0, 1, 1), (1, 0, 1, 1)], AVX2, scratch=False)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", CONVS)
def test_long_expression(name, isa):
    """A loop over the pixels of a tile applies it."""
    check_epilogue(CONVS[name], SWISH, [(0, 0, 0, 0)], isa, constant=False)


SHAPES = [(0, 1, 0, 0), (1, 1, 1, 0), (0,), (1, 1, 0, 1), (0, 1, 1, 1), (1, 0, 0, 1), (1, 0, 1, 0), (0, 0), (), (1, 1)]


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_operands_of_every_shape_beside_joined_rows(shape, constant):
    """A pointwise convolution walks its rows as one, unless an operand is different from row to row."""
    check_epilogue(CONVS["pointwise"], SUM, [shape], AVX2, constant, scratch=not constant)


JOINED = [(0, 0, 0, 0), (1, 1, 0, 0), (0, 0), (1, 0, 1, 1), (1,)]


@pytest.mark.parametrize(
    ("extents", "shape", "isa"),
    [
        (extents, shape, (HOST, AVX2)[(i + k) % 2])
        for i, extents in enumerate([(5, 9, 1), (40, 1, 1), (5, 1, 6)])
        for k, shape in enumerate(JOINED)
    ],
    ids=lambda value: str(value) if isinstance(value, tuple) else "avx512" if value is HOST else "avx2",
)
def test_joined_rows_of_one_pixel(extents, shape, isa):
    """An innermost dimension of one element is walked like any other, not read as a broadcast. Any two of the three
    parameters meet in all combinations."""
    check_epilogue(ConvCase(conv((1, 1)), extents, 19, n=2), SUM, [shape], isa, constant=False)


def test_joined_rows_of_a_volume_of_one_column():
    case = ConvCase(conv((1, 1, 1)), (5, 3, 4, 1), 19)
    check_epilogue(case, SUM, [(0, 0, 0, 0, 0)], AVX2, constant=False)


@pytest.mark.parametrize("shape", [(0, 1, 0, 0), (1, 1, 0, 1)], ids=str)
def test_operands_beside_a_window(shape):
    check_epilogue(CONVS["window"], SUM, [shape], HOST, constant=False)


def test_rows_are_joined_where_nothing_forbids_it():
    """The width of a kernel's class is that of all its rows."""
    case = CONVS["pointwise"]
    x, w = (TensorType(a.shape, a.dtype) for a in case.arrays())
    out = case.op.infer([x, w])
    for shape, joined in [((2, 19, 3, 4), True), ((2, 19, 1, 1), True), ((), True), ((4,), False), ((3, 1), False)]:
        extra = dense(TensorType(shape, F32), 8 if len(shape) == 4 else 1)
        op, ins, result = replace(case.op, epilogue=SUM), (dense(x, 8), dense(w), extra), dense(out, 8)
        _, [found] = ConvKernel.classify(op, ins, result, Boxes.whole(out.shape), AVX2)
        assert (found[1], found[2]) == ((1, 12) if joined else (0, 4)), shape
