"""Transposed convolution kernels, in 1 to 3 dimensions, against the definition in float64."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.ops.cpu.products import row_tiles
from brickrt.ops.operators.conv import ConvTranspose
from tests.support.cpu.conv_cases import ConvCase, check_bricks, check_conv, transposed
from tests.support.cpu.harness import AVX2, HOST

ISAS = [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")]

CASES = {
    "1d": ConvCase(transposed((3,), (2,), pads=(1,), extra=(1,)), (5, 4), 18, n=2),
    "1d stride above the kernel": ConvCase(transposed((2,), (3,), bias=True), (18, 3), 3),
    "2x2/2": ConvCase(transposed((2, 2), (2, 2), bias=True), (17, 3, 2), 20),
    "3x3/2": ConvCase(transposed((3, 3), (2, 2), pads=(1, 1), extra=(1, 0)), (4, 3, 3), 17),
    "4x3/3x2 dilated": ConvCase(transposed((4, 3), (3, 2), (2, 3), (2, 1)), (5, 2, 3), 4),
    "3x3/1": ConvCase(transposed((3, 3), pads=(1, 1)), (20, 3, 4), 5),
    "1x1": ConvCase(transposed((1, 1)), (5, 2, 3), 18),
    "of one pixel": ConvCase(transposed((3, 2), (2, 2)), (3, 1, 1), 17),
    "pads cut all but the middle": ConvCase(transposed((5, 5), pads=(3, 3)), (2, 3, 3), 3),
    "3d": ConvCase(transposed((2, 3, 2), (2, 2, 1), pads=(0, 1, 1), extra=(0, 1, 0)), (3, 2, 2, 3), 17),
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


WIDE = {
    "stride 97": ConvCase(transposed((99,), (97,), pads=(1,)), (3, 10), 17),
    "stride 40, kernel 130": ConvCase(transposed((2, 130), (1, 40), bias=True), (2, 3, 5), 1, plain=True),
    "stride 30, dilated": ConvCase(transposed((3,), (30,), (31,)), (2, 9), 3),
}


@pytest.mark.parametrize("name", WIDE)
def test_wide_strides(name):
    check_conv(WIDE[name], HOST, scratch=False)


@pytest.mark.parametrize("name", ["1d", "2x2/2"])
def test_weights_that_are_no_constants(name):
    check_conv(CASES[name], HOST, packed=False, scratch=False)


@pytest.mark.parametrize("isa", ISAS)
def test_computed_weights_are_packed_for_many_pixels(isa):
    case = ConvCase(transposed((4, 4), (2, 2), pads=(1, 1), bias=True), (21, 9, 12), 37, n=2)
    check_conv(case, isa, packed=False, scratch=False)


def test_float64():
    check_conv(CASES["3x3/2"], AVX2, dtype="float64", scratch=False)


@pytest.mark.parametrize("stride", [1, 2])
def test_long_rows(stride):
    check_conv(ConvCase(transposed((11,), (stride,), pads=(5,)), (2, 24), 3), HOST, scratch=False)


def test_groups_of_whole_blocks():
    check_conv(ConvCase(transposed((2, 2), (2, 2), groups=2, bias=True), (32, 2, 2), 64), HOST)
    check_conv(ConvCase(transposed((3,), (2,), groups=2), (6, 3), 32), HOST, scratch=False)


@pytest.mark.parametrize("brick", [(1, 9, 2, 2), (1, 1, 3, 5), (2, 9, 1, 1)])
def test_bricks_make_the_whole(brick):
    """Bricks that begin at every phase of the stride."""
    check_bricks(ConvCase(transposed((3, 3), (2, 3), pads=(1, 1), bias=True), (3, 3, 3), 12, n=2), brick, AVX2)


@st.composite
def random_cases(draw) -> ConvCase:
    rank = draw(st.integers(1, 3))

    def each(lo: int, hi: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(lo, hi)) for _ in range(rank))

    strides, spatial, kernel, dilations = each(1, 3), each(1, 4), each(1, 4), each(1, 2)
    extra = tuple(draw(st.integers(0, s - 1)) for s in strides)
    room = [s * (e - 1) + d * (k - 1) for s, e, d, k in zip(strides, spatial, dilations, kernel, strict=True)]
    pads = tuple(draw(st.integers(0, min(3, r // 2))) for r in room)
    op = ConvTranspose(kernel, strides, dilations, pads, pads, extra, bias=draw(st.booleans()))
    return ConvCase(op, (draw(st.integers(1, 10)), *spatial), draw(st.integers(1, 20)), draw(st.integers(1, 2)))


@settings(max_examples=6, deadline=None)
@given(random_cases())
def test_random_windows(case):
    check_conv(case, AVX2, scratch=False)
