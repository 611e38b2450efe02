"""Depthwise and grouped convolution kernels, whose groups share a vector of channels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.ops.cpu.kernel import choose_kernel
from brickrt.ops.cpu.operand import dense
from brickrt.ops.cpu.products import row_tiles
from brickrt.ops.cpu.products.conv import ConvKernel
from brickrt.ops.cpu.products.depthwise import DepthwiseKernel
from brickrt.ops.operators.conv import Conv
from brickrt.ops.types import TensorType
from tests.support.cpu.conv_cases import ConvCase, check_bricks, check_conv, conv, transposed
from tests.support.cpu.harness import AVX2, HOST

ISAS = [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")]

CASES = {
    "depthwise": ConvCase(conv((3, 3), pads=(1, 1), groups=20, bias=True), (20, 4, 5), 20, n=2),
    "depthwise 1d, strided, dilated": ConvCase(conv((3,), (2,), (2,), (3,), (0,), groups=17), (17, 7), 17),
    "depthwise 3d": ConvCase(conv((2, 3, 2), pads=(1, 1, 0), groups=18), (18, 2, 3, 4), 18),
    "depthwise 9x9": ConvCase(conv((1, 9), pads=(0, 4), groups=3), (3, 2, 5), 3),
    "multiplier 2": ConvCase(conv((2, 2), groups=11, bias=True), (11, 3, 3), 22),
    "multiplier 3": ConvCase(conv((3,), pads=(1,), groups=7), (7, 4), 21),
    "two in, two out": ConvCase(conv((2, 2), groups=10), (20, 3, 3), 20),
    "four in, four out": ConvCase(conv((1, 3), pads=(0, 1), groups=5, bias=True), (20, 2, 4), 20),
    "three in, two out": ConvCase(conv((3, 1), pads=(1, 0), groups=9), (27, 3, 2), 18),
    "one in, many out": ConvCase(conv((1, 1), groups=2), (2, 3, 2), 38),
    "many in, one out": ConvCase(conv((2, 1), groups=3), (57, 3, 2), 3),
    "one pixel": ConvCase(conv((1, 1), groups=5), (5, 1, 1), 5),
    "plain": ConvCase(conv((3, 3), pads=(1, 1), groups=4), (4, 3, 4), 4, plain=True),
    "transposed depthwise": ConvCase(transposed((3, 3), (2, 2), pads=(1, 1), extra=(1, 1), groups=18), (18, 3, 2), 18),
    "transposed groups": ConvCase(transposed((2, 2), (2, 1), groups=3, bias=True), (9, 2, 3), 15),
    "transposed 3d": ConvCase(transposed((2, 1, 3), (1, 2, 3), groups=2), (4, 2, 2, 2), 6),
}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", CASES)
def test_boxes(name, isa):
    check_conv(CASES[name], isa)


@pytest.mark.parametrize(("name", "isa"), [(name, (HOST, AVX2)[k % 2]) for k, name in enumerate(CASES)])
def test_taps_that_are_walked(monkeypatch, name, isa):
    """As rows are computed that would be too much code."""
    monkeypatch.setattr(row_tiles, "MOST_TILES", 0)
    check_conv(CASES[name], isa, scratch=False)


@pytest.mark.parametrize("name", ["depthwise", "multiplier 2", "three in, two out", "transposed groups"])
def test_weights_that_are_no_constants(name):
    check_conv(CASES[name], HOST, packed=False, scratch=False)


@pytest.mark.parametrize("name", ["depthwise", "three in, two out"])
def test_float64(name):
    check_conv(CASES[name], AVX2, dtype="float64", scratch=False)


@pytest.mark.parametrize("name", ["depthwise", "multiplier 2", "transposed depthwise"])
@pytest.mark.parametrize("brick", [(1, 1, 1, 2), (2, 9, 2, 3)])
def test_bricks_make_the_whole(name, brick):
    check_bricks(CASES[name], brick, AVX2)


@pytest.mark.parametrize(("isa", "whole"), [(HOST, 64), (AVX2, 32)])
def test_who_takes_which_groups(isa, whole):
    """Groups of several whole blocks of output channels go to the direct convolution."""
    kinds = {(4, 4): DepthwiseKernel, (16, 16): DepthwiseKernel, (20, 2): DepthwiseKernel, (whole, 2): ConvKernel}
    for (m, groups), expected in {**kinds, (2 * isa.lanes, 2): DepthwiseKernel, (isa.lanes, 1): ConvKernel}.items():
        assert chosen(m, groups, (1,), isa) is expected


def test_few_registers_share_taps():
    """Groups of several blocks, too, where there are 16 registers and taps along the row share what they read."""
    assert (chosen(32, 2, (3,), AVX2), chosen(64, 2, (3,), HOST)) == (DepthwiseKernel, ConvKernel)


@pytest.mark.parametrize("isa", ISAS)
def test_taps_that_are_walked_share_nothing(isa):
    """Groups of whole blocks go to the direct convolution where rows read too many taps for code of their own."""
    for groups, expected in ((2, ConvKernel), (4, DepthwiseKernel)):
        pads = {3: 1, 301: 150}
        kinds = [chosen(2 * isa.lanes, groups, (taps,), isa, extent=400, pad=pad) for taps, pad in pads.items()]
        assert kinds == [DepthwiseKernel, expected]


def chosen(m, groups, kernel, isa, extent=4, pad=0):
    shapes = [(1, 16, extent), (m, 16 // groups, *kernel), (1, m, extent + 1 + 2 * pad - kernel[0])]
    x, w, out = (TensorType(shape, np.float32) for shape in shapes)
    op = conv(kernel, pads=(pad,), groups=groups)
    return choose_kernel(op, (dense(x, isa.lanes), dense(w)), dense(out, isa.lanes), isa)


LONG = {
    "whole groups": ConvCase(conv((90,), pads=(45,), groups=2, bias=True), (32, 53), 64),
    "groups of half a block": ConvCase(conv((90,), (2,), (1,), (40,), (30,), groups=4), (32, 71), 32),
    "depthwise, dilated": ConvCase(conv((60,), dilations=(2,), pads=(59,), groups=19), (19, 37), 19),
    "depthwise in two dimensions": ConvCase(conv((2, 90), pads=(1, 50), end=(0, 39), groups=5), (5, 3, 40), 10),
    "transposed": ConvCase(transposed((90,), (3,), pads=(20,), groups=3), (12, 17), 15),
}


# on AVX2 transposed windows are the same code in smaller tiles, and whole groups in so many that their whole is enough
@pytest.mark.parametrize(
    ("name", "isa"), [*((name, HOST) for name in LONG), *((name, AVX2) for name in list(LONG)[1:-1])]
)
def test_many_taps(name, isa):
    """Pixels side by side read most of them together, those at the ends some alone."""
    check_conv(LONG[name], isa, scratch=False)


def test_many_taps_of_whole_groups_in_small_tiles():
    check_bricks(LONG["whole groups"], (1, 8, 64), AVX2, 1)


@st.composite
def random_cases(draw) -> ConvCase:
    groups, c, m = draw(st.integers(2, 9)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    kernel, strides, dilations, pads = (tuple(draw(st.integers(a, 3)) for _ in range(2)) for a in (1, 1, 1, 0))
    op = Conv(kernel, strides, dilations, pads, pads, groups, draw(st.booleans()))
    spatial = (max(draw(st.integers(1, 5)), s - 2 * p) for s, p in zip(op.window.spans, pads, strict=True))
    return ConvCase(op, (groups * c, *spatial), groups * m)


@settings(max_examples=8, deadline=None)
@given(random_cases())
def test_random_groups(case):
    check_conv(case, AVX2, scratch=False)
