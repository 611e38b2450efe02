"""Kernels of images at points, against the definition."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from brickrt.ops.operators.sampling.grid_sample import GridSample
from brickrt.ops.types import Boxes
from tests.support.cpu.harness import AVX2, HOST, check, run_kernel

ISAS = [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")]
WAYS = [*product(("nearest", "linear", "cubic"), ("zeros", "border", "reflection"), (False, True))]
RNG = np.random.default_rng(3)


def data(*shape: int, spread: float = 1.0) -> np.ndarray:
    return (spread * RNG.standard_normal(shape)).astype(np.float32)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("mode", "padding", "align"), WAYS[::2])
def test_planes(mode, padding, align, isa):
    """Rows of points end within vectors; points lie beyond the image as well."""
    check(GridSample(mode, padding, align), [data(2, 3, 5, 7), data(2, 4, 21, 2)], isa, atol=1e-5)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("mode", "padding", "align"), WAYS[1::2])
def test_blocks_of_channels(mode, padding, align, isa):
    arrays = [data(1, isa.lanes + 3, 5, 4), data(1, 3, 18, 2)]
    check(GridSample(mode, padding, align), arrays, isa, blocks=[isa.lanes, 1], out_block=isa.lanes, atol=1e-5)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("mode", "padding", "align"), WAYS[:12:5])
def test_volumes(mode, padding, align, isa):
    arrays = [data(1, isa.lanes + 1, 3, 5, 4), data(1, 2, 2, 17, 3)]
    check(GridSample(mode, padding, align), arrays, isa, atol=1e-5)
    check(GridSample(mode, padding, align), arrays, isa, blocks=[isa.lanes, 1], out_block=isa.lanes, atol=1e-5)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_points_far_away_and_no_numbers(padding):
    """Images of one pixel, and coordinates that no image has."""
    odd = [np.nan, np.inf, -np.inf, 3e38, -1e7, 1e-40, 1.0, -1.0]
    grid = np.array([*product(odd, odd)], np.float32).reshape(1, 4, 16, 2)
    for image in (data(1, 2, 1, 1), data(1, 2, 6, 3)):
        check(GridSample("linear", padding, False), [image, grid], atol=1e-5)


@pytest.mark.parametrize("block", [1, HOST.lanes])
def test_bits_do_not_depend_on_boxes(block):
    op, arrays = GridSample("linear", "zeros", True), [data(2, 33, 9, 8), data(2, 5, 40, 2, spread=0.6)]
    layout = {"blocks": [block, 1], "out_block": block}
    whole = run_kernel(op, arrays, Boxes.whole((2, 33, 5, 40)), **layout)
    for lo, hi in (([0, 0, 1, 3], [1, 33, 4, 40]), ([1, 16, 0, 17], [2, 33, 5, 18])):
        box = Boxes.one(lo, hi)
        got = run_kernel(op, arrays, box, **layout, scratch=True)
        np.testing.assert_array_equal(got, whole[box.slices()])
