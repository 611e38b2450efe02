"""Products by one and by two levels of Strassen's scheme against the definition in float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pytest

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.emit.size_program import SizeProgram
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.sized_kernel import emit_sized, outline
from brickrt.ops.cpu.strassen.kernel import StrassenKernel, TwoLevelStrassenKernel
from brickrt.ops.cpu.strassen.sizes import CHUNKS, TileCounts, chunks_of, fits, part_rows, tile_rows
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.conv_cases import ConvCase, by_bricks, conv, middle
from tests.support.cpu.harness import AVX2, HOST, PACED, check

F32 = np.dtype(np.float32)
CHUNK = CHUNKS[1]
KERNELS = [pytest.param(StrassenKernel, id="once"), pytest.param(TwoLevelStrassenKernel, id="twice")]
SUM = apply("max", apply("add", arg(0, F32), arg(1, F32)), const(0, F32))
LONG = apply("mul", arg(0, F32), apply("add", apply("erf", arg(0, F32)), const(1, F32)))
ERROR = 1e-5  # of the largest output
WAYS = [
    ("avx512 once", HOST, StrassenKernel),
    ("avx2 twice", AVX2, TwoLevelStrassenKernel),
    ("avx512 twice", HOST, TwoLevelStrassenKernel),
    ("avx2 once", AVX2, StrassenKernel),
]


def in_turn(name: str, cases: Iterable[Any]) -> pytest.MarkDecorator:
    """Parameters `name`, `isa` and `kernel`: both instruction sets and both kernels by turns."""
    rows = []
    for k, case in enumerate(cases):
        way, isa, kernel = WAYS[k % len(WAYS)]
        rows.append(pytest.param(case, isa, kernel, id=f"{case} {way}"))
    return pytest.mark.parametrize((name, "isa", "kernel"), rows)


def sample(*shapes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def whole_and_part(shape):
    """All, and a box that cuts every dimension it can: by each other one, further kernels are compiled."""
    return [Boxes.whole(shape), Boxes.one([e // 3 for e in shape], [max(e - e // 4, 1) for e in shape])]


def check_product(op, arrays, isa, kernel, **how):
    """All inputs but the first are constants, except those of the epilogue."""
    want = evaluate_whole(op, arrays)
    constants = 2 + op.bias
    packed = [0 < i < constants for i in range(len(arrays))]
    how = {"rtol": 0, "atol": ERROR * np.abs(want).max(), "boxes": whole_and_part(want.shape)} | how
    check(op, arrays, isa, packed=packed, expected=want, kernel_cls=kernel, **how)


@in_turn("rows", [1, 2, 5, 3, 8, 25, 40, 27, 56, 58])
def test_rows(rows, isa, kernel):
    check_product(MatMul(), sample((rows, 64), (64, 64)), isa, kernel, boxes=[Boxes.whole((rows, 64))])


@in_turn("columns", [1, 16, 31, 64, 65, 128, 150])
def test_columns(columns, isa, kernel):
    check_product(
        MatMul(True), sample((7, 64), (64, columns), (columns,)), isa, kernel, boxes=[Boxes.whole((7, columns))]
    )


@in_turn("depth", [1, 17, 64, 100, 192, 728, *[2 * CHUNK] * 2, *[3 * CHUNK + 64] * 4])
def test_depths(depth, isa, kernel):
    check_product(MatMul(), sample((9, depth), (depth, 70)), isa, kernel, boxes=[Boxes.whole((9, 70))])


def test_depth_is_swept_in_equal_chunks_of_whole_vectors():
    assert [chunks_of(depth, 16)[0] for depth in (32, CHUNK, 2 * CHUNK, 4 * CHUNK)] == [1, 1, 2, 4]
    assert [chunks_of(depth, 16, levels=2)[0] for depth in (64, 768, 1024, 2048)] == [1, 1, 2, 4]
    assert chunks_of(1500, 16, levels=2) == (2, 768)
    for depth, levels in product(range(1, 4096, 7), CHUNKS):
        n, each = chunks_of(depth, 16, levels)
        assert each % (2**levels * 16) == 0
        assert each <= CHUNKS[levels]
        assert (n - 1) * each < depth <= n * each


def test_what_fits():
    assert fits(MatMul(), (64, 3))
    assert not fits(MatMul(), (2, 64, 3))


@pytest.mark.parametrize(
    ("shape", "kernel"),
    [
        ((3, 5, 64), StrassenKernel),
        ((3, 5, 64), TwoLevelStrassenKernel),
        ((2, 1, 5, 64), StrassenKernel),
        ((1, 3, 5, 64), TwoLevelStrassenKernel),
    ],
    ids=str,
)
def test_batches(shape, kernel):
    check_product(MatMul(), sample(shape, (64, 40)), AVX2, kernel)


@pytest.mark.parametrize(
    ("shape", "kernel"),
    list(
        zip([(2, 5, 61), (5, 61), (61,), (1,), (5, 1), ()], [StrassenKernel, TwoLevelStrassenKernel] * 3, strict=True)
    ),
    ids=str,
)
def test_epilogue_with_another_operand(shape, kernel):
    check_product(MatMul(True, SUM), sample((2, 5, 64), (64, 61), (61,), shape), AVX2, kernel)


@in_turn("depth", [64, 64, 3 * CHUNK, 3 * CHUNK])
def test_long_epilogue(depth, isa, kernel):
    arrays = sample((2, 11, depth), (depth, 61), (61,))
    arrays[1] /= np.float32(depth**0.5)
    check_product(MatMul(True, LONG), arrays, isa, kernel)


@pytest.mark.parametrize("kernel", KERNELS)
def test_columns_cut_inside_pairs(kernel):
    boxes = [Boxes.one((0, a), (5, b)) for a, b in [(0, 61), (60, 61), (3, 5), (5, 45), (7, 33), (16, 32)]]
    check_product(MatMul(True, SUM), sample((5, 64), (64, 61), (61,), (5, 61)), AVX2, kernel, boxes=boxes)


@pytest.mark.parametrize("brick", [(1, 3, 500), (2, 2, 32), (1, 4, 11)])
@pytest.mark.parametrize(("depth", "kernel"), [(64, TwoLevelStrassenKernel), (2 * CHUNK, StrassenKernel)])
def test_bricks_make_the_whole(brick, depth, kernel):
    arrays = sample((2, 7, depth), (depth, 101), (101,))
    want = evaluate_whole(MatMul(True), arrays)
    got, _ = by_bricks(MatMul(True), arrays, brick, AVX2, [1, 1, 1], 1, [False, True, True], kernel)
    np.testing.assert_allclose(got, want, rtol=0, atol=ERROR * np.abs(want).max())


@pytest.mark.parametrize("most", [1, 6, 14])
def test_tiles_cover_the_rows_of_a_part_once(most):
    for rows in range(120):
        top = tile_rows(rows, most)
        assert 1 <= top <= most
        runs = TileCounts.of(rows, top, most).runs
        covered = [start + r * count + i for start, repeat, count in runs for r in range(repeat) for i in range(count)]
        assert covered == list(range(rows))
        assert len({count for *_, count in runs}) <= 2 and sum(repeat for _, repeat, _ in runs) == -(-rows // most)


def test_code_has_tiles_for_all_numbers_of_rows():
    """T = 14: parts of 7 rows or more are cut in tiles of 7 to 14, shorter ones in one of 1 to 6."""
    assert {tile_rows(rows, 14) for rows in range(7, 2000)} == {14}
    assert {tile_rows(rows, 14) for rows in range(1, 7)} == {6}
    for most, rows in product((6, 14), range(1, 200)):
        tiles = TileCounts.of(rows, tile_rows(rows, most), most)
        assert sum(repeat * count for _, repeat, count in tiles.runs) == rows
        assert all(count in tiles.heights for _, _, count in tiles.runs)


@pytest.mark.parametrize(
    ("kernel", "isa"), [(StrassenKernel, HOST), (StrassenKernel, PACED), (TwoLevelStrassenKernel, HOST)]
)
def test_broad_code_is_good_for_other_numbers_of_rows(kernel, isa):
    def made(rows):
        a, b, y = (dense(TensorType(shape, F32)) for shape in ((rows, 64), (64, 64), (rows, 64)))
        box = Boxes.whole((rows, 64))
        _, (one,) = kernel.classify(MatMul(), (a, b), y, box, isa)
        return kernel(MatMul(), (a, b), y, isa, (False, True), one, broad=True)

    _, table = emit_sized(made(60), "kernel")
    code = SizeProgram.of(table.answers, table.entries)
    for rows in (28, 30, 57, 120, 147, 300, 1000):
        assert code.table(outline(made(rows)).numbers) is not None, rows


def test_parts_of_rows_are_all_rows():
    for rows in range(1, 40):
        there, part, half = part_rows(rows, 2), -(-rows // 4), -(-rows // 2)
        starts = [0, part, half, half + part]
        covered = [start + i for start, n in zip(starts, there, strict=True) for i in range(n)]
        assert covered == list(range(rows))
        assert max(there) == there[0] == part


def check_pixels(case, isa, kernel, op=None, extra=(), **how):
    """A pointwise convolution; `extra` are operands of the epilogue of `op`, shaped as the output is."""
    op = op or case.op
    arrays = [*case.arrays(), *extra]
    want = evaluate_whole(op, arrays)
    packed = [0 < i < 2 + op.bias for i in range(len(arrays))]
    blocks = [isa.lanes if i == 0 or i >= 2 + op.bias else 1 for i in range(len(arrays))]
    how = {"rtol": 0, "atol": ERROR * np.abs(want).max(), "out_block": isa.lanes} | how
    check(op, arrays, isa, packed=packed, expected=want, kernel_cls=kernel, blocks=blocks, **how)


def point(rank=2, strides=(), bias=False):
    return conv((1,) * rank, strides or (1,) * rank, bias=bias)


@in_turn(
    "case",
    [
        ConvCase(point(), (64, 7, 7), 64),
        ConvCase(point(bias=True), (128, 1, 1), 128),
        ConvCase(point(), (64, 14, 14), 24),
        ConvCase(point(bias=True), (64, 3, 28), 96, n=2),
        ConvCase(point(strides=(2, 2)), (64, 13, 14), 130),
        ConvCase(point(strides=(1, 3), bias=True), (64, 5, 9), 40, n=3),
        ConvCase(point(1), (64, 11), 80),
        ConvCase(point(1, (2,), bias=True), (64, 10), 17, n=2),
        ConvCase(point(3), (64, 3, 4, 5), 48),
        ConvCase(point(3, (2, 1, 2), bias=True), (64, 3, 4, 5), 72, n=2),
        ConvCase(point(), (3 * CHUNK, 5, 5), 70),
        ConvCase(point(), (12, 5, 5), 24),
        ConvCase(point(bias=True), (728, 4, 7), 100),
    ],
)
def test_pointwise_convolutions(case, isa, kernel):
    """The whole, and of several images and of many channels a part, for which another kernel is compiled: in the whole
    tensor on AVX2, else alone in memory."""
    shape = case.op.infer([TensorType(a.shape, a.dtype) for a in case.arrays()]).shape
    whole, some = Boxes.whole(shape), [middle(shape, isa.lanes)] if case.n > 1 or case.x[0] > 64 else []
    boxes, parts = ([whole, *some], []) if isa is AVX2 else ([whole], some)
    check_pixels(case, isa, kernel, boxes=boxes, parts=parts)


@pytest.mark.parametrize(
    ("extents", "expr", "depth", "kernel"),
    [
        ((5, 6), SUM, 64, StrassenKernel),
        ((5, 6), LONG, 3 * CHUNK, TwoLevelStrassenKernel),
        ((30, 1), SUM, 3 * CHUNK, TwoLevelStrassenKernel),
        ((30, 1), LONG, 64, StrassenKernel),
    ],
    ids=["rows sum one chunk", "rows long more", "column sum more", "column long one chunk"],
)
def test_pointwise_convolution_with_an_epilogue(extents, expr, depth, kernel):
    """Any two of shape, epilogue and depth meet in all combinations."""
    case = ConvCase(point(bias=True), (depth, *extents), 104, n=2)
    op = dataclasses.replace(case.op, epilogue=expr)
    boxes = [Boxes.whole((2, 104, *extents)), middle((2, 104, *extents), AVX2.lanes)]
    check_pixels(case, AVX2, kernel, op, sample((2, 104, *extents)) if expr is SUM else (), boxes=boxes)


@pytest.mark.parametrize("brick", [(1, 500, 2, 9), (2, 64, 5, 4), (2, 24, 5, 9)])
@pytest.mark.parametrize(("stride", "kernel"), [(1, StrassenKernel), (2, TwoLevelStrassenKernel)])
def test_bricks_of_pixels_make_the_whole(brick, stride, kernel):
    case = ConvCase(point(strides=(stride, stride), bias=True), (64, 5, 9), 150, n=2)
    arrays = case.arrays()
    want = evaluate_whole(case.op, arrays)
    got, _ = by_bricks(case.op, arrays, brick, AVX2, [8, 1, 1], 8, [False, True, True], kernel)
    np.testing.assert_allclose(got, want, rtol=0, atol=ERROR * np.abs(want).max())


@pytest.mark.parametrize(
    "op",
    [
        conv((3, 3)),
        conv((1, 1), pads=(1, 1)),
        conv((1, 1), groups=2),
        dataclasses.replace(point(), channel_scaled=True),
    ],
    ids=["window", "padded", "grouped", "scaled"],
)
def test_other_convolutions_do_not_fit(op):
    assert fits(point(), (8, 64, 1, 1))
    assert not fits(op, (8, 64, *op.kernel))


@pytest.mark.parametrize("kernel", KERNELS)
def test_error_is_that_of_few_more_roundings(kernel):
    """At a depth where summing in order has an error of about 1e-6."""
    arrays = sample((64, 768), (768, 128))
    want = evaluate_whole(MatMul(), arrays)
    got, _ = by_bricks(MatMul(), arrays, (64, 128), HOST, [1, 1], 1, [False, True], kernel)
    assert np.abs(got - want).max() < kernel.levels * 4e-6 * np.abs(want).max()
