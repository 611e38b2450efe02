"""Weights of float16 that are widened once for all pixels, against kernels that widen them for every tile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.products.conv import ConvKernel
from brickrt.ops.types import Boxes, TensorType
from tests.ops.cpu.products.rows.test_pace import CONVS
from tests.support.cpu.conv_cases import ConvCase, conv
from tests.support.cpu.harness import HOST, PACED, run_kernel

CASES = CONVS | {
    "many pixels": ConvCase(conv((3, 3), pads=(1, 1), bias=True), (40, 30, 31), 78),
    "a point": ConvCase(conv((1, 1), bias=True), (33, 40, 40), 62),
    "transposed images of two": ConvCase(conv((2, 3), (1, 2), pads=(1, 1)), (19, 24, 33), 64, n=2),
}


def arrays_of(case):
    """The input in float32, weights in float16, the bias in float32."""
    x, w, *bias = case.arrays()
    return [x, w.astype(np.float16), *bias]


def kernel_of(case, isa):
    arrays = arrays_of(case)
    out = case.op.infer([TensorType(a.shape, a.dtype) for a in arrays])
    ins = [dense(TensorType(a.shape, a.dtype), b) for a, b in zip(arrays, case.blocks(isa.lanes), strict=True)]
    packed = (False, *[True] * (len(ins) - 1))
    found = ConvKernel.classify(case.op, ins, dense(out, isa.lanes), Boxes.whole(out.shape), isa)[1][0]
    return ConvKernel(case.op, tuple(ins), dense(out, isa.lanes), isa, packed, found)


@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_of_weights_that_every_tile_widens(name):
    case, arrays = CASES[name], arrays_of(CASES[name])
    want = evaluate_whole(case.op, arrays)
    how = {"blocks": case.blocks(16), "out_block": 16, "packed": [False, *[True] * (len(arrays) - 1)]}
    assert kernel_of(case, PACED).widens and not kernel_of(case, HOST).widens
    box = Boxes.whole(want.shape)
    once, each = (run_kernel(case.op, arrays, box, isa, **how) for isa in (PACED, HOST))
    assert once.tobytes() == each.tobytes()
    np.testing.assert_allclose(once, want, rtol=0, atol=2e-5 * np.abs(want).max())


def test_who_widens_once():
    """Weights of float16 on processors of two multiply-adds a cycle, for more than a few tiles of pixels."""
    case = CASES["a point"]
    assert not kernel_of(case, replace(PACED, cpu="znver4")).widens
    assert not kernel_of(replace(case, x=(33, 5, 5)), PACED).widens
