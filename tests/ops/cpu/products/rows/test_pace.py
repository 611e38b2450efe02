"""Chunks of weights that tiles of pixels share, against the definition in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.products.conv import ConvKernel
from brickrt.ops.cpu.products.rows.pace import chunk_steps, even_steps
from brickrt.ops.expr import apply, arg
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes, TensorType
from tests.ops.cpu.products.words.test_byte_dot import requantized
from tests.support.cpu.conv_cases import ConvCase, by_bricks, check_conv, conv, middle
from tests.support.cpu.harness import AVX2, HOST, PACED, ZEN4, check, run_kernel

ISAS = pytest.mark.parametrize("isa", [PACED, AVX2], ids=["paced", "avx2"])

CONVS = {
    "pixels as one row": ConvCase(conv((1, 1), bias=True), (600, 7, 7), 93),
    "many pixels and long sums": ConvCase(conv((1, 1), bias=True), (1030, 24, 23), 45),
    "strided pixels": ConvCase(conv((1, 1), (2, 2)), (520, 13, 9), 61, n=2),
    "taps": ConvCase(conv((3, 3), pads=(1, 1), bias=True), (100, 7, 9), 45),
    "strided taps": ConvCase(conv((3, 3), (2, 2), pads=(1, 1)), (50, 17, 29), 79),
    "a line": ConvCase(conv((5,), pads=(2,)), (130, 50), 64),
    "a volume": ConvCase(conv((3, 2, 3), pads=(1, 0, 1)), (33, 3, 4, 16), 31),
}
PRODUCTS = {
    "rows": ((50, 700), (700, 150)),
    "matrices": ((3, 29, 400), (400, 77)),
    "a matrix for each": ((2, 30, 300), (2, 300, 40)),
    "one chunk": ((75, 256), (256, 32)),
}


def conv_kernel(case, isa):
    arrays, v = case.arrays(), isa.lanes
    out = case.op.infer([TensorType(a.shape, a.dtype) for a in arrays])
    ins = [dense(TensorType(a.shape, a.dtype), b) for a, b in zip(arrays, case.blocks(v), strict=True)]
    packed = (False, *[True] * (len(ins) - 1))
    shape_class = ConvKernel.classify(case.op, ins, dense(out, v), Boxes.whole(out.shape), isa)[1][0]
    return ConvKernel(case.op, tuple(ins), dense(out, v), isa, packed, shape_class)


@pytest.mark.parametrize(("name", "isa"), [(name, (PACED, AVX2)[k % 2]) for k, name in enumerate([*CONVS, "taps"])])
def test_convolutions(name, isa):
    """By turns; where weights are asked for at an even pace, bits are looked at below."""
    for each in (PACED, AVX2):
        kernel = conv_kernel(CONVS[name], each)
        assert kernel.shares_chunks and kernel.chunks > 1
    check_conv(CONVS[name], isa, tolerance=2e-4)


@ISAS
@pytest.mark.parametrize(("name", "brick"), [("pixels as one row", (1, 2, 3, 7)), ("taps", (1, 2, 2, 9))])
def test_bits_of_bricks_are_those_of_the_whole(name, brick, isa):
    case, v = CONVS[name], isa.lanes
    arrays = case.arrays()
    packed, edges = [False, *[True] * (len(arrays) - 1)], (1, brick[1] * v, *brick[2:])
    parts, _ = by_bricks(case.op, arrays, edges, isa, case.blocks(v), v, packed)
    how = {"blocks": case.blocks(v), "out_block": v, "packed": packed}
    whole = run_kernel(case.op, arrays, Boxes.whole(parts.shape), isa, **how)
    assert parts.tobytes() == whole.tobytes()


@pytest.mark.parametrize("name", CONVS)
def test_bits_are_those_of_one_sweep(name):
    case, v = CONVS[name], PACED.lanes
    arrays = case.arrays()
    shape = case.op.infer([TensorType(a.shape, a.dtype) for a in arrays]).shape
    how = {"blocks": case.blocks(v), "out_block": v, "packed": [False, *[True] * (len(arrays) - 1)]}
    shared, alone = (run_kernel(case.op, arrays, Boxes.whole(shape), isa, **how) for isa in (PACED, HOST))
    assert shared.tobytes() == alone.tobytes()


BYTES = {
    "pixels as one row": ConvCase(conv((1, 1), bias=True), (2100, 7, 7), 93),
    "strided pixels": ConvCase(conv((1, 1), (2, 2)), (2050, 13, 9), 61, n=2),
    "taps": ConvCase(conv((3, 3), pads=(1, 1), bias=True), (400, 7, 9), 45),
    "a volume": ConvCase(conv((3, 2, 3), pads=(1, 0, 1)), (133, 3, 4, 16), 31),
}


def byte_arrays(case, scales):
    rng = np.random.default_rng(2)
    x, w, *bias = case.arrays()
    bytes_of = rng.integers(0, 256, x.shape).astype(np.uint8), rng.integers(-128, 128, w.shape).astype(np.int8)
    rest = [rng.integers(-999, 999, b.shape).astype(np.int32) for b in bias]
    shape = (1, case.m, *[1] * (x.ndim - 2))
    return [*bytes_of, *rest, *([rng.uniform(1e-6, 1e-4, shape).astype(np.float32)] if scales else [])]


@pytest.mark.parametrize(("name", "scales"), [*((name, k % 2 == 0) for k, name in enumerate(BYTES)), ("taps", False)])
def test_bytes_whose_sums_wait_in_the_workspace(name, scales):
    """Sums as they are, and quantized ones."""
    case, v = BYTES[name], PACED.lanes
    op, arrays = replace(case.op, epilogue=requantized(1) if scales else None), byte_arrays(case, scales)
    kinds, packed = [TensorType(a.shape, a.dtype) for a in arrays], [False, *[True] * (len(arrays) - 1)]
    blocks, shape = [v, *[1] * (len(arrays) - 1)], op.infer(kinds).shape
    ins, out = [dense(kind, b) for kind, b in zip(kinds, blocks, strict=True)], dense(op.infer(kinds), v)
    classes = ConvKernel.classify(op, ins, out, Boxes.whole(shape), PACED)[1]
    kernel = ConvKernel(op, tuple(ins), out, PACED, tuple(packed), classes[0])
    assert kernel.keeps_apart and kernel.chunks > 1
    how = {"blocks": blocks, "out_block": v, "packed": packed}
    check(op, arrays, PACED, boxes=[Boxes.whole(shape), middle(shape, v)], **how)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in PRODUCTS[name])
    shape = MatMul().infer([TensorType(x.shape, x.dtype) for x in (a, b)]).shape
    lo, hi = [0] * (len(shape) - 1) + [32], [*shape[:-2], shape[-2] - 1, shape[-1]]
    boxes = [Boxes.whole(shape), Boxes.one(lo, hi)]
    for isa in (PACED, AVX2):
        check(MatMul(), [a, b], isa, packed=[False, True], boxes=boxes, rtol=2e-4, atol=2e-4)
    shared, alone = (run_kernel(MatMul(), [a, b], boxes[0], isa, packed=[False, True]) for isa in (PACED, HOST))
    assert shared.tobytes() == alone.tobytes()


def test_a_product_that_is_added_to_another_tensor():
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((31, 900), (900, 100), (31, 100))]
    op = MatMul(epilogue=apply("add", arg(0, arrays[0].dtype), arg(1, arrays[0].dtype)))
    how = {"packed": [False, True, False], "boxes": [Boxes.whole((31, 100))]}
    check(op, arrays, PACED, rtol=2e-4, atol=2e-4, **how)


def test_who_shares_chunks():
    """Few pixels with many weights, on processors that ask for these at an even pace."""
    case = CONVS["pixels as one row"]
    assert conv_kernel(case, PACED).shares_chunks
    assert not conv_kernel(case, ZEN4).shares_chunks
    assert not conv_kernel(case, replace(PACED, cpu="skylake-avx512")).shares_chunks
    assert not conv_kernel(replace(case, x=(600, 1, 3)), PACED).shares_chunks
    assert not conv_kernel(replace(case, x=(600, 56, 56)), PACED).shares_chunks
    assert not conv_kernel(replace(case, x=(64, 7, 7)), PACED).shares_chunks
    assert conv_kernel(replace(case, x=(600, 56, 56)), AVX2).shares_chunks
    assert not conv_kernel(replace(case, x=(64, 7, 7)), AVX2).shares_chunks


def test_chunks_are_whole_units_that_stay_in_l1():
    assert chunk_steps(2, 64, 16) == 128
    assert chunk_steps(3, 64, 16) == 80
    assert chunk_steps(4, 64, 144) == 144


def test_chunks_of_products_are_equal():
    assert even_steps(384, 192) == 128
    assert even_steps(256, 128) == 256
    assert even_steps(1536, 192) == 171
