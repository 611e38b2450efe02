"""Products of uint8 and int8, by VNNI, by 16-bit products and byte by byte, against exact integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.expr import apply, arg, cast, const
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.conv_cases import ConvCase, conv, middle, transposed
from tests.support.cpu.harness import AVX2, HOST, ZEN4, check

BYTEWISE = Isa(4, 16, "x86-64")
UNPAIRED = replace(AVX2, cpu="znver3")  # which has two units that multiply integers
ISAS = {"vnni": ZEN4, "words of 512": HOST, "words of 256": AVX2, "unpaired": UNPAIRED, "bytes": BYTEWISE}
F32, U8 = np.dtype(np.float32), np.dtype(np.uint8)

CONVS = {
    "pointwise": (ConvCase(conv((1, 1), bias=True), (19, 4, 5), 35, n=2), "vnni"),
    "pointwise, paired": (ConvCase(conv((1, 1), bias=True), (37, 4, 5), 35, n=2), "words of 256"),
    "pointwise, one channel": (ConvCase(conv((1,)), (1, 3), 9), "words of 256"),
    "pointwise, volume": (ConvCase(conv((1, 1, 1)), (12, 2, 3, 3), 40), "words of 256"),
    "pointwise, long": (ConvCase(conv((1, 1), bias=True), (1100, 3, 7), 48), "words of 256"),
    "pointwise, strided": (ConvCase(conv((1, 1), (2, 2)), (32, 5, 4), 17), "words of 512"),
    "padded": (ConvCase(conv((3, 3), pads=(1, 1), bias=True), (20, 7, 6), 18), "words of 256"),
    "three channels": (ConvCase(conv((5, 3), (2, 2), pads=(2, 1), bias=True), (3, 9, 11), 20), "vnni"),
    "dilated": (ConvCase(conv((3, 2), (1, 2), (2, 3), (2, 1)), (6, 5, 8), 9), "bytes"),
    "1d": (ConvCase(conv((3,), pads=(1,)), (5, 7), 21), "words of 512"),
    "3d": (ConvCase(conv((2, 1, 3), pads=(1, 0, 1), bias=True), (5, 3, 2, 4), 17), "vnni"),
    "groups": (ConvCase(conv((1, 3), pads=(0, 1), groups=2, bias=True), (16, 2, 5), 32), "words of 256"),
    "depthwise": (ConvCase(conv((3, 3), (2, 1), pads=(1, 1), groups=21, bias=True), (21, 6, 9), 21), "vnni"),
    "depthwise, dilated": (ConvCase(conv((2, 3), (1, 1), (1, 2), groups=9), (9, 4, 9), 9), "words of 256"),
    "transposed": (ConvCase(transposed((2, 2), (2, 2), bias=True), (17, 3, 2), 20, n=2), "vnni"),
    "transposed, padded": (ConvCase(transposed((3, 3), (2, 2), pads=(1, 1), extra=(1, 0)), (6, 3, 3), 17), "bytes"),
    "transposed, dilated": (ConvCase(transposed((4, 3), (3, 2), (2, 3), (2, 1)), (5, 2, 3), 4), "words of 256"),
    "depthwise by bytes": (ConvCase(conv((3,), pads=(1,), groups=5), (5, 6), 5), "bytes"),
}


def integers(case: ConvCase) -> list[np.ndarray]:
    """Operands with many of the extreme values, whose sums of pairs do not fit 16 bits."""
    rng = np.random.default_rng(3)
    shapes = [a.shape for a in case.arrays()]
    x = rng.choice([0, 1, 127, 128, 254, 255], shapes[0]).astype(np.uint8)
    w = rng.choice([-128, -127, -1, 3, 126, 127], shapes[1]).astype(np.int8)
    return [x, w, *(rng.integers(-(2**20), 2**20, s).astype(np.int32) for s in shapes[2:])]


@pytest.mark.parametrize("name", CONVS)
def test_convolutions(name):
    case, way = CONVS[name]
    arrays, isa = integers(case), ISAS[way]
    shape = case.op.infer([TensorType(a.shape, a.dtype) for a in arrays]).shape
    blocks, constant = case.blocks(isa.lanes), [False, *[True] * (1 + case.op.bias)]
    how = {"blocks": blocks, "out_block": isa.lanes, "packed": constant}
    check(case.op, arrays, isa, boxes=[Boxes.whole(shape)], parts=[middle(shape, isa.lanes)], **how)


def requantized(extras: int) -> tuple:
    """clip(round(sum · scale per channel) + 3), with the second extra operand, an unsigned byte, added first."""
    value = apply("mul", cast(arg(0, np.int32), F32), arg(1, F32))
    if extras > 1:
        value = apply("add", value, cast(arg(2, U8), F32))
    value = apply("add", apply("round", value), const(3, F32))
    return cast(apply("min", apply("max", value, const(0, F32)), const(255, F32)), U8)


@pytest.mark.parametrize("way", ["vnni", "words of 256"])
def test_a_convolution_that_quantizes_its_sums(way):
    isa, rng = ISAS[way], np.random.default_rng(1)
    op = Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1, True, requantized(2))
    x, w, bias = integers(ConvCase(conv((1, 1), bias=True), (24, 3, 5), 40))
    scale = rng.uniform(1e-4, 3e-3, (1, 40, 1, 1)).astype(np.float32)
    skip = rng.integers(0, 256, (1, 40, 3, 5)).astype(np.uint8)
    blocks = [isa.lanes, 1, 1, 1, isa.lanes]
    packed = [False, True, True, True, False]
    check(op, [x, w, bias, scale, skip], isa, blocks=blocks, out_block=isa.lanes, packed=packed)


@pytest.mark.parametrize("way", ISAS)
@pytest.mark.parametrize(("shape", "columns"), [((7, 36), 37), ((2, 3, 8), 16), ((1, 4), 5)])
def test_matrix_products(way, shape, columns):
    rng = np.random.default_rng(5)
    a = rng.integers(0, 256, shape).astype(np.uint8)
    b = rng.integers(-128, 128, (shape[-1], columns)).astype(np.int8)
    bias = rng.integers(-999, 999, columns).astype(np.int32)
    whole = *shape[:-1], columns
    part = Boxes.one([e // 3 for e in whole], [max(e - e // 4, 1) for e in whole])
    check(MatMul(bias=True), [a, b, bias], ISAS[way], packed=[False, True, True], boxes=[Boxes.whole(whole), part])


def test_sums_are_exact():
    """A pair of 255 · 127 does not fit the 16 bits in which some instructions add."""
    x, w = np.full((1, 64, 1, 1), 255, np.uint8), np.full((1, 64, 1, 1), 127, np.int8)
    assert evaluate_whole(conv((1, 1)), [x, w]).item() == 64 * 255 * 127


def test_other_types_are_refused():
    kinds = [TensorType((1, 4, 2, 2), np.int8), TensorType((3, 4, 1, 1), np.uint8)]
    with pytest.raises(ValueError, match="operands of types int8"):
        conv((1, 1)).infer(kinds)
    with pytest.raises(ValueError, match="operands of types uint8"):
        MatMul(bias=True).infer([TensorType((2, 4), U8), TensorType((4, 3), np.int8), TensorType((3,), F32)])
