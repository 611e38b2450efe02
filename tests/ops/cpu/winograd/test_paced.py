"""Weights that tiles ask for at an even pace, against kernels that do not ask, and the sizes that go with it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.ops.base import evaluate_whole
from brickrt.ops.cpu.winograd.kernel import WinogradMaker
from brickrt.ops.cpu.winograd.sizes import MOST_BLOCKS, NEAR_WEIGHT_BYTES, Sizes, choose_sizes, register_tiles
from brickrt.ops.operators.conv import Conv
from brickrt.ops.types import Boxes
from tests.support.cpu.harness import AVX2, HOST, PACED, run_kernel

# shape of the input, outputs, kernel, strides, pads, edge, first and last row and channel of a box
KINDS = {
    "few tiles": ((1, 96, 9, 13), 100, (3, 3), (1, 1), (1, 1), 4, (0, 9), (0, 100)),
    "a box of some channels": ((2, 96, 17, 18), 150, (3, 3), (1, 1), (1, 1), 4, (2, 17), (64, 128)),
    "edge of two": ((1, 130, 11, 14), 131, (3, 3), (1, 1), (1, 1), 2, (0, 11), (0, 131)),
    "swept": ((1, 48, 6, 7), 70, (3, 3, 3), (1, 1, 1), (1, 1, 1), 4, (1, 6), (0, 70)),
    "swept, many tiles of a plane": ((1, 64, 3, 28), 128, (3, 3, 3), (1, 1, 1), (1, 1, 1), 4, (0, 3), (0, 128)),
    "residues": ((1, 48, 20, 21), 70, (5, 5), (2, 2), (2, 2), 4, (0, 10), (0, 70)),
    "a line": ((1, 200, 7), 160, (7,), (1,), (3,), 4, (0, 7), (0, 160)),
}  # fmt: skip


def case(kind):
    """An operator, what it is given, and a box of its output."""
    x, outputs, kernel, strides, pads, edge, rows, channels = KINDS[kind]
    x = (*x, 28) if len(kernel) == 3 else x
    op = Conv(kernel, strides, (1,) * len(kernel), pads, pads, 1, True)
    rng = np.random.default_rng(0)
    shapes = x, (outputs, x[1], *kernel), (outputs,)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    whole = evaluate_whole(op, arrays)
    lo, hi = [0] * whole.ndim, list(whole.shape)
    lo[1], hi[1], lo[2], hi[2] = *channels, *rows
    return op, arrays, whole, Boxes.one(lo, hi), edge


@pytest.mark.parametrize("kind", KINDS)
def test_bits_are_those_of_kernels_that_do_not_ask(kind):
    op, arrays, whole, box, edge = case(kind)
    how = {"blocks": [16, 1, 1], "out_block": 16, "packed": [False, True, True], "kernel_cls": WinogradMaker(edge)}
    asked, alone = (run_kernel(op, arrays, box, isa, **how) for isa in (PACED, HOST))
    assert asked.tobytes() == alone.tobytes()
    np.testing.assert_allclose(asked, whole[box.slices()], rtol=0, atol=2e-5 * np.abs(whole).max())


@pytest.mark.parametrize("kind", ["a box of some channels", "edge of two", "swept", "residues", "a line"])
def test_tiles_of_eight_lanes(kind):
    op, arrays, whole, box, edge = case(kind)
    how = {"blocks": [8, 1, 1], "out_block": 8, "packed": [False, True, True], "kernel_cls": WinogradMaker(edge)}
    asked = run_kernel(op, arrays, box, AVX2, **how)
    np.testing.assert_allclose(asked, whole[box.slices()], rtol=0, atol=2e-5 * np.abs(whole).max())


def test_groups_of_tiles_last_until_the_next_weights_are_there():
    sizes = [choose_sizes(n, 1, 2, 32, 2 * NEAR_WEIGHT_BYTES, paced=True) for n in (4, 16, 49, 81, 196)]
    assert [s.group for s in sizes] == [4, 16, 50, 45, 56]
    assert choose_sizes(49, 1, 2, 32, NEAR_WEIGHT_BYTES, paced=True) == choose_sizes(49, 1, 2, 32, NEAR_WEIGHT_BYTES)
    assert choose_sizes(49, 1, 2, 32, 2 * NEAR_WEIGHT_BYTES, raw=True, paced=True) == choose_sizes(
        49, 1, 2, 32, 2 * NEAR_WEIGHT_BYTES, raw=True
    )


def test_tiles_of_few_registers_share_all_weights():
    sizes = [choose_sizes(n, 1, 2, 16, NEAR_WEIGHT_BYTES // 2, paced=True) for n in (4, 16, 49, 81, 196)]
    assert [s.group for s in sizes] == [4, 16, 30, 42, 42]


@given(tiles=st.integers(1, 4000), planes=st.integers(1, 60), ob=st.integers(1, 2))
def test_any_group_has_room(tiles, planes, ob):
    sizes = choose_sizes(tiles, planes, ob, 32, 2 * NEAR_WEIGHT_BYTES, paced=True)
    counts = register_tiles(ob, 32)
    assert sizes.t in counts and sizes.group % sizes.t == 0 and sizes.group <= MOST_BLOCKS * counts[0]
    assert isinstance(sizes, Sizes) and 1 <= sizes.run <= planes


def test_an_outlier_is_found_in_any_plane_of_a_large_group():
    """What is not finite is computed again directly, wherever its tile lies among the planes that are held."""
    op, arrays, _, box, edge = case("swept, many tiles of a plane")
    arrays[0][0, 5, 1, 27, 27] = np.inf
    arrays[0][0, 40, 2, 0, 13] = np.nan
    how = {"blocks": [16, 1, 1], "out_block": 16, "packed": [False, True, True], "kernel_cls": WinogradMaker(edge)}
    got = run_kernel(op, arrays, box, PACED, **how)
    with np.errstate(invalid="ignore"):
        want = evaluate_whole(op, arrays)
    assert (np.isfinite(got) == np.isfinite(want)).all()
    finite = np.isfinite(want)
    np.testing.assert_allclose(got[finite], want[finite], rtol=0, atol=2e-5 * np.abs(want[finite]).max())


@settings(max_examples=6)
@given(
    channels=st.integers(65, 140),
    outputs=st.integers(120, 200),
    planes=st.integers(1, 4),
    sides=st.tuples(st.integers(1, 31), st.integers(1, 31)),
    edge=st.sampled_from([2, 4]),
    seed=st.integers(0, 99),
)
def test_bits_of_any_shape(channels, outputs, planes, sides, edge, seed):
    rng = np.random.default_rng(seed)
    op = Conv((3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1), 1, False)
    shapes = (1, channels, planes, *sides), (outputs, channels, 3, 3, 3)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    box = Boxes.whole((1, outputs, planes, *sides))
    how = {"blocks": [16, 1], "out_block": 16, "packed": [False, True], "kernel_cls": WinogradMaker(edge)}
    asked, alone = (run_kernel(op, arrays, box, isa, **how) for isa in (PACED, HOST))
    assert asked.tobytes() == alone.tobytes()


def test_sizes_are_known_for_images_of_any_size() -> None:
    """Groups are counted, not gone through: bands of 2^40 tiles are planned as those of a few."""
    few, many = (choose_sizes(tiles, 1, 2, 32, 2 * NEAR_WEIGHT_BYTES, paced=True) for tiles in (10**6, 2**40))
    assert (few.t, few.run) == (many.t, many.run)
