"""Kernels of what taps at points read, against the definition."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.ops.operators.sampling.deformed_columns import DeformedColumns
from brickrt.ops.types import Boxes
from tests.support.cpu.harness import AVX2, HOST, check, run_kernel

ISAS = [pytest.param(HOST, id="avx512"), pytest.param(AVX2, id="avx2")]
RNG = np.random.default_rng(4)


def data(*shape: int, spread: float = 1.0) -> np.ndarray:
    return (spread * RNG.standard_normal(shape)).astype(np.float32)


def operands(channels: int, groups: int, taps: int, space: tuple[int, ...], outputs: tuple[int, ...]) -> list:
    """Images, points around and beyond them, and factors."""
    points = data(2, groups * taps * len(space), *outputs, spread=4.0) + 2
    return [data(2, channels, *space), points, data(2, groups * taps, *outputs)]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("groups", "factors"), [(1, True), (2, False), (6, True)])
def test_planes(groups, factors, isa):
    """Rows of outputs end within vectors."""
    arrays = operands(6, groups, 3, (5, 7), (3, 21))
    check(DeformedColumns(3), arrays if factors else arrays[:2], isa, atol=1e-5)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("each", [2.0, 1.0, 0.5, 0.125])
def test_blocks_of_channels(each, isa):
    """Groups of so many blocks each: several blocks, one, a part of one."""
    channels = 4 * isa.lanes
    arrays = operands(channels, max(1, int(4 / each)), 2, (5, 4), (2, 18))
    check(DeformedColumns(2), arrays, isa, blocks=[isa.lanes, 1, 1], out_block=isa.lanes, atol=1e-5)
    check(DeformedColumns(2), arrays[:2], isa, blocks=[isa.lanes, 1], out_block=isa.lanes, atol=1e-5)


@pytest.mark.parametrize("isa", ISAS)
def test_volumes(isa):
    arrays = operands(isa.lanes, 1, 2, (3, 5, 4), (2, 2, 17))
    check(DeformedColumns(2), arrays, isa, atol=1e-5)
    check(DeformedColumns(2), arrays, isa, blocks=[isa.lanes, 1, 1], out_block=isa.lanes, atol=1e-5)


def test_points_far_away_and_no_numbers():
    """An image of one pixel, and coordinates that no image has."""
    odd = np.array([np.nan, np.inf, -np.inf, 3e38, -1e7, 1e-40, 0.5, -0.5], np.float32)
    points = np.stack(np.meshgrid(odd, odd))[None]
    for image in (data(1, 2, 1, 1), data(1, 2, 6, 3)):
        check(DeformedColumns(1), [image, points], atol=1e-5)


@pytest.mark.parametrize("block", [1, HOST.lanes])
def test_bits_do_not_depend_on_boxes(block):
    """Boxes begin and end within the channels of a tap, too."""
    lanes = HOST.lanes
    op, arrays = DeformedColumns(3), operands(2 * lanes, 4, 3, (9, 8), (5, 40))
    layout = {"blocks": [block, 1, 1], "out_block": block}
    whole = run_kernel(op, arrays, Boxes.whole((2, 6 * lanes, 5, 40)), **layout)
    for lo, hi in (([0, 0, 1, 3], [1, 6 * lanes, 4, 40]), ([1, lanes, 0, 17], [2, 3 * lanes, 5, 18])):
        box = Boxes.one(lo, hi)
        np.testing.assert_array_equal(run_kernel(op, arrays, box, **layout, scratch=True), whole[box.slices()])
