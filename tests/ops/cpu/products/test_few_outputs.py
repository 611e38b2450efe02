"""Convolutions with few output channels in their last block, where input channels share the lanes of a vector."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.products.conv import ConvKernel
from brickrt.ops.cpu.products.few_outputs import FewOutputs
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.conv import Conv
from brickrt.ops.types import Boxes, TensorType
from tests.support.cpu.conv_cases import ConvCase, check_bricks, check_conv, conv, transposed
from tests.support.cpu.harness import AVX2, HOST, ZEN4, check, random_boxes

F32 = np.dtype(np.float32)
SETS = {"avx512": HOST, "zen4": ZEN4, "avx2": AVX2}

CASES = {
    "1x1 to 1": ConvCase(conv((1, 1), bias=True), (32, 3, 7), 1, n=2),
    "1x1 to 2 of 19": ConvCase(conv((1, 1)), (19, 4, 5), 2),
    "3x3 to 3": ConvCase(conv((3, 3), pads=(1, 1), bias=True), (33, 4, 19), 3),
    "3x3/2 to 4 of 5": ConvCase(conv((3, 3), (2, 2), pads=(1, 1)), (5, 5, 9), 4),
    "3 to 1": ConvCase(conv((2,), bias=True), (3, 20), 1),
    "1 to 2": ConvCase(conv((3,), pads=(1,)), (1, 18), 2),
    "plain 3 to 2": ConvCase(conv((3, 3), pads=(1, 1)), (3, 3, 18), 2, plain=True),
    "3d to 1": ConvCase(conv((2, 3, 2), (1, 1, 2), (1, 2, 1), (1, 1, 0), bias=True), (16, 3, 4, 6), 1),
    "1x1 to 8": ConvCase(conv((1, 1)), (24, 2, 9), 8),
}


def two_sets_of_each(names):
    """Names with two of three instruction sets, by turns."""
    return [(name, isa) for i, name in enumerate(names) for k, isa in enumerate(SETS) if (i + k) % 3]


# eight outputs fill half a vector, which is a way of its own on Zen 4
@pytest.mark.parametrize(("name", "isa"), [*two_sets_of_each(CASES), ("1x1 to 8", "zen4")])
def test_boxes(name, isa):
    """Results are blocked and plain by turns: of each case, and on each instruction set."""
    i, k = list(CASES).index(name), list(SETS).index(isa)
    plain_out = (i + k + (i % 3 == 2 and k == 2)) % 2 == 1
    check_conv(replace(CASES[name], plain_out=plain_out), SETS[isa])


RAGGED = {
    "24": ConvCase(conv((1, 1), bias=True), (20, 3, 5), 24, n=2),
    "3x3 to 19": ConvCase(conv((3, 3), pads=(1, 1)), (9, 3, 6), 19),
    "40": ConvCase(conv((1, 1)), (17, 4, 4), 40),
    "33 of 3 plain": ConvCase(conv((3, 3), (2, 2), pads=(1, 1), bias=True), (3, 6, 7), 33, plain=True),
    "transposed": ConvCase(transposed((3, 2), (2, 2), pads=(1, 0), bias=True), (18, 3, 4), 20),
    "one pixel": ConvCase(conv((1, 1), bias=True), (20, 1, 1), 24),
}


@pytest.mark.parametrize(("name", "isa"), two_sets_of_each(RAGGED))
def test_last_block_of_several(name, isa):
    check_conv(RAGGED[name], SETS[isa])


@pytest.mark.parametrize("edge", [1, 2, 3])
def test_channels_cut_where_the_last_block_is_folded(edge):
    check_bricks(ConvCase(conv((1, 2), bias=True), (9, 2, 6), 4 * 8 + 3), (1, edge, 2, 5), AVX2)


def test_rows_joined_into_a_plain_result():
    check_bricks(ConvCase(conv((1, 1), bias=True), (20, 7, 5), 2, n=2, plain_out=True), (1, 1, 3, 5), AVX2)


@pytest.mark.parametrize("brick", [(1, 1, 2, 3), (2, 1, 5, 4)])
def test_bricks_of_a_plain_result(brick):
    check_bricks(ConvCase(conv((3, 3), pads=(1, 1)), (9, 5, 11), 3, n=2, plain_out=True), brick, AVX2)


def test_a_plain_box_of_some_channels_leaves_the_others_alone():
    case = ConvCase(conv((1, 1)), (16, 2, 9), 4)
    boxes = [Boxes.one((0, a, 0, 0), (1, b, 2, 9)) for a, b in [(0, 1), (1, 3), (3, 4)]]
    check(case.op, case.arrays(), HOST, blocks=[16, 1], out_block=1, packed=[False, True], boxes=boxes, rtol=1e-4)


@pytest.mark.parametrize("plain_out", [False, True])
def test_float64_and_weights_that_are_no_constants(plain_out):
    case = ConvCase(conv((2, 2), bias=True), (20, 3, 9), 3, plain_out=plain_out)
    check_conv(case, AVX2, dtype="float64", scratch=False)
    check_conv(case, HOST, packed=False, scratch=False)


@pytest.mark.parametrize("plain_out", [False, True])
def test_epilogue_on_folded_outputs(plain_out):
    """relu(conv + residual) times a value per channel, in the layout of the output."""
    total = apply("add", arg(0, F32), arg(1, F32))
    expr = apply("mul", apply("max", total, const(0, F32)), arg(2, F32))
    op = replace(conv((3, 3), pads=(1, 1)), epilogue=expr)
    rng, lanes = np.random.default_rng(0), HOST.lanes
    shapes = [(1, 18, 5, 21), (3, 18, 3, 3), (1, 3, 5, 21), (1, 3, 1, 1)]
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    block = 1 if plain_out else lanes
    blocks, packed = [lanes, 1, block, block], [False, True, False, True]
    boxes = [*random_boxes((1, 3, 5, 21), 0), Boxes.one((0, 0, 1, 2), (1, 3, 4, 19))]
    check(op, arrays, HOST, blocks=blocks, out_block=block, packed=packed, boxes=boxes, rtol=1e-4, atol=1e-4)


def test_how_many_channels_share_a_vector():
    """Outputs → input channels in one vector of 16 lanes."""

    def few(c: int, m: int, spatial: tuple[int, ...] = (8, 8), isa: Isa = HOST) -> FewOutputs | None:
        kind = [TensorType(s, "float32") for s in [(1, c, *spatial), (m, c, 1, 1), (1, m, *spatial)]]
        ins = (dense(kind[0], 16), dense(kind[1]))
        return ConvKernel(conv((1, 1)), ins, dense(kind[2], 16), isa, (False, True), (0, 0, 8, 0, 0, 7)).few_outputs

    found = [few(64, m) for m in (1, 2, 3, 4, 8, 9, 16, 24, 32)]
    assert [f and f.ways for f in found] == [16, 8, 4, 4, 2, None, None, 2, None]
    assert few(3, 1) == FewOutputs(4, 16)
    assert (few(64, 24, (1, 1)), few(64, 3, (1, 1))) == (None, FewOutputs(4, 16))
    assert [few(64, m, isa=ZEN4) for m in (4, 8, 16)] == [FewOutputs(4, 16), FewOutputs(1, 8), None]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 4), st.integers(1, 40), st.integers(1, 3), st.sampled_from([1, 2, 4, 8]))
def test_packed_weights_hold_each_weight_once(m, c, taps, ways):
    lanes, unit = 16, 16
    m = min(m, lanes // ways)
    rows = np.arange(1.0, 1 + m * c * taps).reshape(m, c, taps)
    packed = np.concatenate([part.ravel() for part in FewOutputs(ways, lanes).pack(rows, unit)])
    assert packed.size % lanes == 0
    assert sorted(packed[packed > 0]) == rows.ravel().tolist()


@st.composite
def random_cases(draw) -> ConvCase:
    def each(lo: int, hi: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(lo, hi)) for _ in range(2))

    op = Conv(each(1, 3), each(1, 2), each(1, 2), each(0, 2), each(0, 2), bias=draw(st.booleans()))
    spans = zip((draw(st.integers(1, 3)), draw(st.integers(1, 20))), op.window.spans, op.pads, op.pads_end, strict=True)
    x = tuple(max(e, s - a - b) for e, s, a, b in spans)
    m = draw(st.integers(1, 12))
    return ConvCase(op, (draw(st.integers(1, 20)), *x), m, plain_out=m <= 4 and draw(st.booleans()))


@settings(max_examples=10, deadline=None)
@given(random_cases())
def test_random_windows(case):
    check_conv(case, AVX2, scratch=False)
