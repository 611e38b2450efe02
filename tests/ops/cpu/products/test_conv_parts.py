"""Convolutions whose channels come in parts that their epilogue combines: gates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickrt.ops.base import evaluate_whole
from brickrt.ops.expr import Expr, apply, arg
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.conv_cases import ConvCase, by_bricks, conv, middle
from tests.support.cpu.harness import AVX2, HOST, check

F32 = np.dtype(np.float32)
GATE = apply("mul", arg(0, F32), arg(1, F32))
GLU_SUM = apply("add", apply("mul", arg(0, F32), apply("sigmoid", arg(1, F32))), arg(2, F32))
THREE = apply("add", apply("mul", arg(0, F32), arg(1, F32)), arg(2, F32))

CASES = {
    "pointwise, whole blocks": (ConvCase(conv((1, 1), bias=True), (5, 3, 7), 64, n=2), GATE, 2),
    "pointwise, blocks with a rest": (ConvCase(conv((1, 1), bias=True), (33, 2, 3), 38), GATE, 2),
    "pointwise, a tile that is not full": (ConvCase(conv((1, 1)), (7, 4, 3), 160), GATE, 2),
    "pointwise, few channels": (ConvCase(conv((1, 1), bias=True), (3, 5, 2), 6), GATE, 2),
    "three parts": (ConvCase(conv((1, 1), bias=True), (6, 3, 3), 57), THREE, 3),
    "strided window": (ConvCase(conv((3, 2), (2, 1), pads=(1, 0)), (4, 5, 6), 40), GATE, 2),
    "residual": (ConvCase(conv((1, 1), bias=True), (5, 3, 4), 40), GLU_SUM, 2),
    "depthwise": (ConvCase(conv((3, 3), pads=(1, 1), groups=64, bias=True), (64, 4, 11), 64, n=2), GATE, 2),
    "depthwise, strided": (ConvCase(conv((3,), (2,), pads=(1,), groups=48), (48, 9), 48), THREE, 3),
    "depthwise, half a vector": (ConvCase(conv((2, 2), groups=22, bias=True), (22, 3, 3), 22), GATE, 2),
    "depthwise, residual": (ConvCase(conv((3, 3), pads=(1, 1), groups=32), (32, 3, 5), 32), GLU_SUM, 2),
}


def prepared(case: ConvCase, expr: Expr, parts: int) -> tuple:
    """The operator and its arrays, with an operand of the output's shape if the expression reads one."""
    op, arrays = replace(case.op, epilogue=expr, gate_parts=parts), case.arrays()
    if expr is GLU_SUM:
        n, m, *spatial = case.op.infer([TensorType(a.shape, a.dtype) for a in arrays]).shape
        arrays.append(np.random.default_rng(1).standard_normal((n, m // parts, *spatial)).astype(F32))
    return op, arrays


def layouts(case: ConvCase, arrays: list, lanes: int) -> list[int]:
    return [*case.blocks(lanes), *[lanes] * (len(arrays) - 2 - case.op.bias)]


# any two of shape, instruction set and packing meet in all combinations
@pytest.mark.parametrize(
    ("name", "isa", "packed"),
    [(name, isa, (i + k) % 2 == 0) for i, name in enumerate(CASES) for k, isa in enumerate((HOST, AVX2))],
)
def test_boxes(name, isa, packed):
    case, expr, parts = CASES[name]
    op, arrays = prepared(case, expr, parts)
    shape = op.infer([TensorType(a.shape, a.dtype) for a in arrays]).shape
    constant = [False, *[packed] * (1 + case.op.bias), *[False] * (expr is GLU_SUM)]
    check(
        op,
        arrays,
        isa,
        blocks=layouts(case, arrays, isa.lanes),
        out_block=isa.lanes,
        packed=constant,
        boxes=[Boxes.whole(shape), middle(shape, isa.lanes)],
        rtol=3e-5,
        atol=3e-5,
        scratch=packed,
    )


@pytest.mark.parametrize("brick", [(1, 1, 1, 2), (2, 2, 9, 3)])
@pytest.mark.parametrize("name", ["pointwise, whole blocks", "pointwise, a tile that is not full", "depthwise"])
def test_bricks_make_the_whole(name, brick):
    case, expr, parts = CASES[name]
    op, arrays = prepared(case, expr, parts)
    edges = (brick[0], brick[1] * AVX2.lanes, *brick[2:])
    packed = [False, *[True] * (1 + case.op.bias)]
    got, _ = by_bricks(op, arrays, edges, AVX2, layouts(case, arrays, AVX2.lanes), AVX2.lanes, packed)
    np.testing.assert_allclose(got, evaluate_whole(op, arrays), rtol=3e-5, atol=3e-5)
