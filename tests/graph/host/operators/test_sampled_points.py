"""Images at the points of a grid: compiled, and by the definition in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.graph.host.helpers import Helpers, helped
from brickrt.graph.host.operators import sampled_points
from brickrt.graph.host.operators.sampled_points import sampled
from brickrt.ops.definitions.sampled_points import sampled_in_numpy
from tests.support.cpu.harness import GuardedMemory
from tests.support.cpu.item_threads import by_threads

LOST = [np.nan, np.inf, -np.inf, 3e38, -1e9, 5e5]
"""Coordinates of no pixel, as those far outside are."""


def drawn(seed: int, shape: tuple[int, ...], spread: float, lost: bool) -> np.ndarray:
    """Coordinates of which some are edges or pixels, and some none."""
    rng = np.random.default_rng(seed)
    grid = (rng.standard_normal(shape) * spread).astype(np.float32)
    grid[rng.random(shape) < 0.2] = rng.choice([-1, 0, 1, 0.5])
    if lost:
        grid[rng.random(shape) < 0.1] = rng.choice(np.array(LOST, np.float32))
    return grid


@settings(max_examples=40, deadline=None)  # many compile
@given(
    st.integers(0, 999),
    st.lists(st.integers(1, 9), min_size=2, max_size=3),
    st.sampled_from([0, 1, 3, 8, 17, 70]),
    st.sampled_from([(1, 1), (3, 5), (4, 70), (0, 3), (17, 31)]),
    st.sampled_from(["nearest", "linear", "cubic"]),
    st.sampled_from(["zeros", "border", "reflection"]),
    st.booleans(),
    st.booleans(),
)
def test_compiled_as_defined(seed, extents, channels, points, mode, padding, align, lost):
    """Also single pixels, no channels, no points, coordinates that are no numbers, and memory that ends there."""
    rng = np.random.default_rng(seed)
    points = (*points, 2)[: len(extents)]
    x = GuardedMemory(rng.standard_normal((2, channels, *extents)).astype(np.float32)).array
    grid = GuardedMemory(drawn(seed, (2, *points, len(extents)), 1.5, lost)).array
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampled_points, "UNCOMPILED_ELEMENTS", -1)
        got = sampled(x, grid, mode, padding, align)
        assert got is not None
        with helped(Helpers(3, by_threads)):
            np.testing.assert_array_equal(sampled(x, grid, mode, padding, align), got)
    wanted = sampled_in_numpy(x.astype(np.float64), grid, mode, padding, align)
    np.testing.assert_allclose(got, wanted, 1e-4, 1e-4)
