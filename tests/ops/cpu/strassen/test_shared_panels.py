"""One level of Strassen's scheme where tiles of rows share panels, against the definition in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.strassen.kernel import StrassenKernel, TwoLevelStrassenKernel
from brickrt.ops.cpu.strassen.sizes import CHUNKS, SHARED_CHUNK, chunks_of, shares_panels
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes
from tests.support.cpu.conv_cases import ConvCase, by_bricks, conv
from tests.support.cpu.harness import HOST, PACED, check

F32 = np.dtype(np.float32)
SUM = apply("max", apply("add", arg(0, F32), arg(1, F32)), const(0, F32))
LONG = apply("mul", arg(0, F32), apply("add", apply("erf", arg(0, F32)), const(1, F32)))
ERROR = 1e-5  # of the largest output
PRODUCTS = {
    "a row": (MatMul(), (1, 70), (70, 64)),
    "few rows": (MatMul(True), (3, 64), (64, 17), (17,)),
    "a tile more": (MatMul(True, SUM), (2, 29, 100), (100, 130), (130,), (2, 29, 130)),
    "many tiles": (MatMul(), (411, 64), (64, 70)),
    "chunks": (MatMul(True, SUM), (57, 2 * SHARED_CHUNK + 40), (2 * SHARED_CHUNK + 40, 150), (150,), (57, 150)),
    "long epilogue": (MatMul(True, LONG), (61, SHARED_CHUNK + 8), (SHARED_CHUNK + 8, 90), (90,)),
}


def sample(*shapes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) / np.float32(shape[0] ** 0.25) for shape in shapes]


def packed_of(op, arrays):
    return [0 < i < 2 + op.bias for i in range(len(arrays))]


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name):
    op, *shapes = PRODUCTS[name]
    arrays = sample(*shapes)
    want = evaluate_whole(op, arrays)
    boxes = [Boxes.whole(want.shape)]
    how = {"packed": packed_of(op, arrays), "expected": want, "boxes": boxes, "kernel_cls": StrassenKernel}
    check(op, arrays, PACED, rtol=0, atol=ERROR * np.abs(want).max(), **how)


@pytest.mark.parametrize("brick", [(30, 64), (8, 45), (57, 128)])
def test_bricks_make_the_whole(brick):
    op, *shapes = PRODUCTS["chunks"]
    arrays = sample(*shapes)
    want = evaluate_whole(op, arrays)
    got, _ = by_bricks(op, arrays, brick, PACED, [1] * 4, 1, packed_of(op, arrays), StrassenKernel)
    np.testing.assert_allclose(got, want, rtol=0, atol=ERROR * np.abs(want).max())


@pytest.mark.parametrize("strides", [(1, 1), (1, 2)])
def test_pixels(strides):
    case = ConvCase(conv((1, 1), strides, bias=True), (SHARED_CHUNK + 100, 7, 9), 90, n=2)
    op, v = replace(case.op, epilogue=LONG), PACED.lanes
    arrays = case.arrays()
    arrays[1] /= np.float32(30)
    want = evaluate_whole(op, arrays)
    how = {"packed": packed_of(op, arrays), "expected": want, "kernel_cls": StrassenKernel, "blocks": [v, 1, 1]}
    boxes = [Boxes.whole(want.shape)]
    check(op, arrays, PACED, rtol=0, atol=ERROR * np.abs(want).max(), out_block=v, boxes=boxes, **how)


def test_bits_are_those_of_tiles_that_share_nothing():
    """A chunk has the same sums in the same order, whichever tile comes first."""
    arrays = sample((75, CHUNKS[1]), (CHUNKS[1], 140))
    results = []
    for isa in (PACED, HOST):
        got, _ = by_bricks(MatMul(), arrays, (75, 140), isa, [1, 1], 1, [False, True], StrassenKernel)
        results.append(got.tobytes())
    assert results[0] == results[1]


def test_chunks_are_longer_where_few_panels_wait_in_l2():
    assert [chunks_of(depth, 16, 1, paced=True)[0] for depth in (384, 768, 1536, 3072)] == [1, 1, 2, 4]
    assert [chunks_of(depth, 16, 2, paced=True) for depth in (768, 3072)] == [chunks_of(d, 16, 2) for d in (768, 3072)]
    assert shares_panels(1, paced=True) and not shares_panels(2, paced=True) and not shares_panels(1, paced=False)
    assert StrassenKernel.levels == 1 and TwoLevelStrassenKernel.levels == 2
