"""Convolutions that multiply their input's channels by factors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickrt.ops.base import evaluate_whole
from brickrt.ops.expr import apply, arg
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.conv_cases import ConvCase, by_bricks, conv, middle
from tests.support.cpu.harness import AVX2, HOST, check

F32 = np.dtype(np.float32)
SUM = apply("add", arg(0, F32), arg(1, F32))

CASES = {
    "pointwise": ConvCase(conv((1, 1), bias=True), (37, 3, 7), 40, n=2),
    "whole blocks": ConvCase(conv((1, 1)), (32, 4, 3), 64),
    "one channel": ConvCase(conv((1,)), (1, 5), 3, n=3),
    "many tiles": ConvCase(conv((1, 1), bias=True), (19, 2, 5), 200),
    "window": ConvCase(conv((3, 2), (2, 1), pads=(1, 1)), (18, 5, 4), 20, n=2),
    "plain": ConvCase(conv((1, 1), bias=True), (3, 4, 5), 17, n=2, plain=True),
    "3d": ConvCase(conv((1, 1, 1)), (20, 2, 3, 2), 9),
}


def prepared(case: ConvCase, lanes: int, each: bool, blocked: bool, packed: bool) -> tuple:
    """Operator, arrays, blocks and what is constant; factors for `each` image, and a residual."""
    arrays = case.arrays()
    shape = case.op.infer([TensorType(a.shape, a.dtype) for a in arrays]).shape
    rng = np.random.default_rng(1)
    factors = rng.standard_normal((case.n if each else 1, case.x[0], *(1 for _ in case.x[1:]))).astype(F32)
    arrays += [factors, rng.standard_normal(shape).astype(F32)]
    constant = [False, *[packed] * (1 + case.op.bias), False, False]
    blocks = [*case.blocks(lanes), lanes if blocked else 1, lanes]
    return replace(case.op, channel_scaled=True, epilogue=SUM), arrays, blocks, constant


# any two of shape, instruction set and packing meet in all combinations
@pytest.mark.parametrize(
    ("name", "isa", "packed"),
    [(name, isa, (i + k) % 2 == 0) for i, name in enumerate(CASES) for k, isa in enumerate((HOST, AVX2))],
)
def test_boxes(name, isa, packed):
    case = CASES[name]
    op, arrays, blocks, constant = prepared(case, isa.lanes, packed, packed, packed)
    shape = arrays[-1].shape
    boxes = [Boxes.whole(shape), middle(shape, isa.lanes)]
    how = {"blocks": blocks, "out_block": isa.lanes, "packed": constant, "rtol": 3e-5, "atol": 3e-5}
    check(op, arrays, isa, boxes=boxes, scratch=packed, **how)


def test_constant_factors():
    op, arrays, blocks, constant = prepared(CASES["pointwise"], 16, True, True, True)
    boxes = [Boxes.whole(arrays[-1].shape)]
    constant[3] = True
    check(op, arrays, HOST, blocks=blocks, out_block=16, packed=constant, boxes=boxes, rtol=3e-5, atol=3e-5)


def test_bricks_make_the_whole():
    """Tasks that have the same channels get the same bits, whatever their rows."""
    op, arrays, blocks, constant = prepared(CASES["many tiles"], 8, True, True, True)
    whole, _ = by_bricks(op, arrays, (1, 200, 2, 5), AVX2, blocks, 8, constant)
    for brick in ((1, 200, 1, 5), (1, 200, 1, 2)):
        got, _ = by_bricks(op, arrays, brick, AVX2, blocks, 8, constant)
        np.testing.assert_array_equal(got, whole)
    np.testing.assert_allclose(whole, evaluate_whole(op, arrays), rtol=3e-5, atol=3e-5)
