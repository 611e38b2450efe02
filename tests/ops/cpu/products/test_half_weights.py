"""Products of float32 by weights that lie in memory as float16, against the definition."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.products.matrices.kernel import MatMulKernel
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.conv_cases import ConvCase, conv, middle, transposed
from tests.support.cpu.harness import AVX2, HOST, PACED, check

CONVS = {
    "pointwise, few outputs": (ConvCase(conv((1, 1), bias=True), (19, 4, 5), 35, n=2), HOST),
    "padded": (ConvCase(conv((3, 3), pads=(1, 1), bias=True), (20, 7, 6), 32), AVX2),
    "depthwise": (ConvCase(conv((3, 3), (2, 1), pads=(1, 1), groups=21), (21, 6, 9), 21), HOST),
    "transposed": (ConvCase(transposed((2, 2), (2, 2)), (17, 3, 2), 20), AVX2),
    "plain in and out": (ConvCase(conv((3, 3), pads=(1, 1)), (3, 5, 6), 3, plain=True, plain_out=True), HOST),
}


@pytest.mark.parametrize("name", CONVS)
def test_convolutions(name):
    case, isa = CONVS[name]
    arrays = case.arrays()
    arrays[1] = arrays[1].astype(np.float16)
    shape, block = case.op.infer([TensorType(a.shape, a.dtype) for a in arrays]).shape, case.out_block(isa.lanes)
    how = {"blocks": case.blocks(isa.lanes), "out_block": block, "packed": [False, *[True] * (1 + case.op.bias)]}
    check(case.op, arrays, isa, boxes=[Boxes.whole(shape)], parts=[middle(shape, block)], atol=1e-5, **how)


@pytest.mark.parametrize("isa", [HOST, AVX2], ids=["avx512", "avx2"])
def test_matrix_products_of_rows_that_share_sets_of_l1(isa):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((13, 1024)).astype(np.float32), rng.standard_normal((1024, 37)).astype(np.float16)
    check(MatMul(), [a, b], isa, packed=[False, True], boxes=[Boxes.whole((13, 37))], scratch=False, atol=2e-4)


WIDENED = {
    "one chunk": ((60, 90), (90, 70)),
    "chunks": ((150, 1100), (1100, 53)),
    "a matrix for each batch": ((3, 75, 200), (3, 200, 33)),
    "one matrix for all": ((2, 75, 200), (200, 40)),
}


@pytest.mark.parametrize("name", WIDENED)
def test_matrix_products_widen_weights_once_for_all_rows(name):
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in WIDENED[name])
    op, arrays = MatMul(bias=True), [a, b.astype(np.float16), rng.standard_normal(b.shape[-1]).astype(np.float32)]
    ins = [dense(TensorType(each.shape, each.dtype)) for each in arrays]
    out = dense(op.infer([each.type for each in ins]))
    whole = Boxes.whole(out.shape)
    _, (shape_class, *_) = MatMulKernel.classify(op, ins, out, whole, PACED)
    kernel = MatMulKernel(op, tuple(ins), out, PACED, (False, True, True), shape_class)
    assert kernel.copies_weights and kernel.workspace > 0 and (kernel.chunks > 1) == (name != "one chunk")
    parts = [middle(out.shape, 1)]
    check(op, arrays, PACED, packed=[False, True, True], boxes=[whole], parts=parts, scratch=False, atol=3e-4)
