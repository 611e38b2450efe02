"""Curves through brick grids: permutations whose steps are short."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.runtime.lowering.space_filling import hilbert


def steps(order: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Distance in bricks, along the axes, of each brick from the one visited before."""
    return np.abs(np.diff(np.stack(np.unravel_index(order, shape)), axis=1)).sum(axis=0)


@settings(deadline=None)
@given(shape=st.lists(st.integers(0, 9), max_size=4))
def test_every_brick_is_visited_once(shape):
    assert np.sort(hilbert(shape)).tolist() == list(range(math.prod(shape)))


@pytest.mark.parametrize("shape", [(2, 2), (16, 16), (8, 8, 8), (64,), (1, 1, 8, 8)])
def test_hilbert_steps_are_adjacent_in_power_of_two_grids(shape):
    assert (steps(hilbert(shape), shape) == 1).all()


def test_hilbert_2x2():
    """The first curve:  0 3    or its mirror image, a U.
    1 2
    """
    assert hilbert((2, 2)).tolist() in ([0, 2, 3, 1], [0, 1, 3, 2])


@pytest.mark.parametrize("shape", [(30, 41), (31, 12, 13)])
def test_any_stretch_of_a_curve_is_compact(shape):
    """32 bricks visited one after the other span far less than the 30 or more that a stretch of rows does."""
    at = np.stack(np.unravel_index(hilbert(shape), shape), axis=1)
    widths = [(np.ptp(at[k : k + 32], axis=0) + 1).max() for k in range(0, len(at) - 32, 32)]
    assert np.mean(widths) < 2.5 * 32 ** (1 / len(shape))


def test_grids_without_an_inside():
    assert hilbert(()).tolist() == [0]
    assert hilbert((0, 3)).tolist() == []
    assert hilbert((1, 1)).tolist() == [0]


def test_too_long_grids_are_refused():
    with pytest.raises(ValueError, match="exceed 63"):
        hilbert((2**20, 1, 2**22, 2**22, 0))
