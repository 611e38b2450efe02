"""Products of bfloat16, by `vdpbf16ps` and by float32 multiply-adds, against float64 sums of the same factors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from brickrt.ops.base import Op
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.expr import apply, arg, cast
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.conv_cases import ConvCase, conv, middle, transposed
from tests.support.cpu.harness import AVX2, HOST, ZEN4, check, run_kernel

BF16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
ISAS = {"vdpbf16ps": ZEN4, "avx512": HOST, "avx2": AVX2, "four lanes": Isa(4, 16, "x86-64")}
SUMMED = {"rtol": 1e-5, "atol": 2e-5}  # sums of up to 200 products of numbers around 1, in another order

CONVS = {
    "pointwise": (ConvCase(conv((1, 1), bias=True), (20, 4, 5), 35, n=2), "vdpbf16ps"),
    "pointwise, strided": (ConvCase(conv((1, 1), (2, 2)), (32, 5, 4), 17), "avx2"),
    "odd channels": (ConvCase(conv((1, 1)), (19, 4, 3), 16), "vdpbf16ps"),
    "padded": (ConvCase(conv((3, 3), pads=(1, 1), bias=True), (20, 7, 6), 18), "vdpbf16ps"),
    "dilated": (ConvCase(conv((3, 2), (1, 2), (2, 3), (2, 1)), (6, 5, 8), 9), "four lanes"),
    "1d": (ConvCase(conv((3,), pads=(1,)), (6, 7), 21), "avx512"),
    "3d": (ConvCase(conv((2, 1, 3), pads=(1, 0, 1), bias=True), (6, 3, 2, 4), 17), "vdpbf16ps"),
    "groups": (ConvCase(conv((1, 3), pads=(0, 1), groups=2, bias=True), (36, 2, 5), 32), "vdpbf16ps"),
    "depthwise": (ConvCase(conv((3, 3), (2, 1), pads=(1, 1), groups=21, bias=True), (21, 6, 9), 21), "vdpbf16ps"),
    "transposed": (ConvCase(transposed((2, 2), (2, 2), bias=True), (18, 3, 2), 20, n=2), "vdpbf16ps"),
    "plain in and out": (ConvCase(conv((3, 3), pads=(1, 1)), (3, 5, 6), 3, plain=True, plain_out=True), "vdpbf16ps"),
}


def storing_float32(op: Op, **other) -> Op:
    return type(op)(**{**vars(op), "epilogue": cast(arg(0, BF16), F32), **other})


LOOSE = ("pointwise", "groups", "transposed")


@pytest.mark.parametrize(
    ("name", "constant"),
    [*((name, True) for name in CONVS), *((name, False) for name in LOOSE)],
    ids=lambda value: value if isinstance(value, str) else "packed" if value else "loose",
)
def test_convolutions(name, constant):
    case, way = CONVS[name]
    isa, op = ISAS[way], storing_float32(case.op)
    arrays = case.arrays(BF16)
    shape = op.infer([TensorType(a.shape, a.dtype) for a in arrays]).shape
    lanes = case.out_block(isa.lanes)
    how = {"blocks": case.blocks(isa.lanes), "out_block": lanes, "packed": [False, *[constant] * (1 + op.bias)]}
    check(op, arrays, isa, boxes=[Boxes.whole(shape)], parts=[middle(shape, lanes)], scratch=constant, **how, **SUMMED)


@pytest.mark.parametrize(
    ("way", "constant", "rows", "depth", "columns"),
    [
        *((way, True, 7, 34, 37) for way in ISAS),
        *((way, False, 7, 34, 37) for way in ("vdpbf16ps", "avx2")),
        *(("vdpbf16ps", constant, 1, 9, 16) for constant in (True, False)),
    ],
)
def test_matrix_products(way, constant, rows, depth, columns):
    """Pairs, and a depth that has none."""
    rng = np.random.default_rng(5)
    shapes = [(2, rows, depth), (depth, columns) if constant else (2, depth, columns)]
    arrays = [rng.standard_normal(shape).astype(BF16) for shape in shapes]
    arrays.append(rng.standard_normal(columns).astype(F32))
    op = storing_float32(MatMul(), bias=True)
    boxes = [Boxes.whole((2, rows, columns)), Boxes.one((1, 0, 16), (2, rows, columns))]
    check(
        op,
        arrays,
        ISAS[way],
        packed=[False, constant, True],
        boxes=boxes[: 1 + (columns > 16)],
        scratch=False,
        **SUMMED,
    )


@pytest.mark.parametrize("way", ["vdpbf16ps", "avx512"])
def test_long_sums_are_as_near_as_those_of_float32(way):
    """The bound is of the sum of magnitudes. Subnormal numbers count as what they are, or as 0."""
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal(shape).astype(BF16) for shape in ((9, 1024), (1024, 32)))
    a[8] = 1e-39
    got = run_kernel(storing_float32(MatMul()), [a, b], Boxes.whole((9, 32)), ISAS[way], packed=[False, True])
    wide = [array.astype(np.float64) for array in (a, b)]
    bound = 1e-6 * (np.abs(wide[0]) @ np.abs(wide[1])) + 1e-35
    assert (np.abs(got - wide[0] @ wide[1]) <= bound).all()


@pytest.mark.parametrize("way", ISAS)
def test_results_are_rounded_to_the_nearest(way):
    """Halfway to even, NaN stays NaN, infinities and what is too large are infinite."""
    values = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -3.0, 3.4e38, np.inf, -np.inf, np.nan], F32)
    w = np.zeros((18, 2, 1, 1), BF16)
    w[:, 0] = 1
    x = np.zeros((1, 2, 1, len(values)), BF16)
    bias_of = np.broadcast_to(values, (1, 18, 1, len(values))).astype(F32)
    op = Conv(
        (1, 1), (1, 1), (1, 1), (0, 0), (0, 0), epilogue=cast(apply("add", cast(arg(0, BF16), F32), arg(1, F32)), BF16)
    )
    lanes = ISAS[way].lanes
    arrays = [x, w, bias_of]
    with np.errstate(all="ignore"):
        want = bias_of.astype(BF16)
    check(op, arrays, ISAS[way], blocks=[lanes, 1, lanes], out_block=lanes, packed=[False, True, False], expected=want)
