"""Convolutions of groups whose channels share vectors with those of other groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.products import row_tiles
from brickrt.ops.expr import apply, arg
from brickrt.ops.operators.conv import Conv
from brickrt.ops.types import Boxes
from tests.support.cpu.conv_cases import ConvCase, check_bricks, check_conv, conv, middle, transposed
from tests.support.cpu.harness import AVX2, HOST, check, random_boxes, run_kernel
from tests.support.cpu.outliers import with_outlier

F32 = np.dtype(np.float32)
FOUR = Isa(4, 32, "haswell", "+avx2,+fma")  # lanes and registers of NEON
ISAS = [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")]


def groups(width: int, count: int, window: Conv, spatial: tuple[int, ...], more: int = 1, n: int = 1) -> ConvCase:
    """`count` groups of `width` channels, and `more` times as many outputs."""
    return ConvCase(replace(window, groups=count), (width * count, *spatial), width * count * more, n)


SQUARE = conv((3, 3), pads=(1, 1))
STRIDED = conv((3, 3), (2, 2), pads=(1, 1), bias=True)
CASES = {
    "2, two images": groups(2, 11, SQUARE, (3, 6), n=2),
    "3": groups(3, 7, STRIDED, (4, 7)),
    "4 of a wide row": groups(4, 5, SQUARE, (2, 37)),
    "4, 3d": groups(4, 6, conv((3, 2, 3), (1, 2, 2), pads=(1, 0, 1)), (2, 4, 5)),
    "5": groups(5, 7, STRIDED, (3, 5)),
    "6, dilated": groups(6, 5, conv((3, 3), (1, 1), (2, 3), (2, 3)), (4, 7)),
    "8, strided": groups(8, 3, STRIDED, (5, 9)),
    "8, pointwise": groups(8, 5, conv((1, 1)), (3, 6)),
    "12, 1d, uneven pads": groups(12, 4, conv((5,), (1,), pads=(3,), end=(0,)), (18,)),
    "16, 5x5": groups(16, 3, conv((5, 5), pads=(2, 2)), (6, 8)),
    "20": groups(20, 3, conv((2, 3), pads=(0, 1)), (3, 5)),
    "24": groups(24, 3, SQUARE, (3, 5)),
    "40, 3d": groups(40, 2, conv((1, 2, 2)), (2, 3, 3)),
    "two for each of one": groups(1, 21, SQUARE, (3, 5), more=2),
    "three for each of four": groups(4, 5, SQUARE, (3, 5), more=3),
    "24 in, 2 out": ConvCase(conv((1, 3), pads=(0, 1), groups=5), (120, 2, 5), 10),
    "2 in, 24 out": ConvCase(conv((1, 3), pads=(0, 1), groups=3), (6, 2, 5), 72),
    "transposed 4": ConvCase(transposed((3, 3), (2, 2), pads=(1, 1), groups=5), (20, 3, 4), 20),
    "transposed 24": ConvCase(transposed((2, 3), (1, 2), groups=2, bias=True), (48, 2, 4), 48),
}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", CASES)
def test_boxes(name, isa):
    check_conv(CASES[name], isa)


@pytest.mark.parametrize("name", ["3", "8, strided", "20", "transposed 4"])
def test_taps_that_are_walked(monkeypatch, name):
    monkeypatch.setattr(row_tiles, "MOST_TILES", 0)
    check_conv(CASES[name], HOST, scratch=False)


@pytest.mark.parametrize("name", ["5", "24"])
def test_weights_that_are_no_constants(name):
    check_conv(CASES[name], HOST, packed=False, scratch=False)


@pytest.mark.parametrize("name", ["4 of a wide row", "20"])
def test_float64(name):
    check_conv(CASES[name], AVX2, dtype="float64", scratch=False)


@pytest.mark.parametrize("name", ["4 of a wide row", "20", "two for each of one"])
def test_plain_inputs(name):
    check_conv(replace(CASES[name], plain=True), HOST, scratch=False)


@pytest.mark.parametrize("name", ["3", "8, strided", "24", "two for each of one"])
def test_bricks_make_the_whole(name):
    check_bricks(CASES[name], (1, 1, 2, 3), HOST)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("width", "count"), [(4, 8), (3, 6), (12, 4), (24, 2)])
def test_gates(isa, width, count):
    """Channels in two parts, whose groups may begin anywhere in a block."""
    case = groups(width, count, conv((1, 3), pads=(0, 1), bias=True), (2, 5))
    op = replace(case.op, epilogue=apply("mul", arg(0, F32), arg(1, F32)), gate_parts=2)
    blocks, packed = case.blocks(isa.lanes), [False, True, True]
    shape = (1, width * count // 2, 2, 3 + 2)
    how = {"boxes": [*random_boxes(shape, 0), middle(shape, isa.lanes)], "rtol": 3e-5, "atol": 3e-5}
    check(op, case.arrays(), isa, blocks=blocks, out_block=isa.lanes, packed=packed, **how)


def run(case: ConvCase, arrays: list[np.ndarray], box: Boxes) -> np.ndarray:
    v, packed = HOST.lanes, [False, *[True] * (len(arrays) - 1)]
    return run_kernel(case.op, arrays, box, HOST, blocks=case.blocks(v), out_block=v, packed=packed)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["2, two images", "5", "8, strided", "24", "two for each of one", "transposed 24"])
def test_nan_and_infinity_stay_in_their_group(name, value):
    case = CASES[name]
    place = (0, case.x[0] // 2, *(extent // 2 for extent in case.x[1:]))
    given, _, want = with_outlier(case.op, case.arrays(), value, place)
    got = run(case, given, Boxes.whole(want.shape))
    np.testing.assert_allclose(got, want, rtol=3e-5, atol=3e-5)
    assert np.isfinite(got[np.isfinite(want)]).all() and not np.isfinite(want).all()


@pytest.mark.parametrize("name", ["4 of a wide row", "12, 1d, uneven pads", "24"])
def test_same_bits_however_rows_are_cut(name):
    """Pixels may be in tiles of any size."""
    case = CASES[name]
    arrays = case.arrays()
    whole = Boxes.whole(evaluate_whole(case.op, arrays).shape)
    expected = run(case, arrays, whole)
    for lo, hi in [(0, 1), (1, 4), (2, whole.hi[0, -1])]:
        box = Boxes(whole.lo.copy(), whole.hi.copy())
        box.lo[0, -1], box.hi[0, -1] = lo, hi
        np.testing.assert_array_equal(run(case, arrays, box), expected[..., lo:hi])


@st.composite
def random_cases(draw) -> ConvCase:
    count, c, m = draw(st.integers(2, 5)), draw(st.integers(1, 26)), draw(st.integers(1, 26))
    kernel, strides, dilations, pads = (tuple(draw(st.integers(a, 3)) for _ in range(2)) for a in (1, 1, 1, 0))
    op = Conv(kernel, strides, dilations, pads, pads, count, draw(st.booleans()))
    spatial = (max(draw(st.integers(1, 9)), s - 2 * p) for s, p in zip(op.window.spans, pads, strict=True))
    return ConvCase(op, (count * c, *spatial), count * m)


@settings(max_examples=8, deadline=None)
@given(random_cases(), st.sampled_from([HOST, AVX2, FOUR]))
def test_random_groups(case, isa):
    check_conv(case, isa, scratch=False)
