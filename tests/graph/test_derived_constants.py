"""Constants made of others are kept for as long as these are there, and no longer."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from brickrt.graph.derived_constants import DerivedConstants, evaluated, evaluated_densely
from brickrt.ops.operators.move import Transpose, View

N = 1 << 15  # elements of float32 that are worth keeping


def double(kept: DerivedConstants, source: np.ndarray) -> np.ndarray:
    return kept.get("double", (source,), lambda: source * 2)


def test_what_is_made_again_is_kept():
    kept, source = DerivedConstants(), np.ones(N, np.float32)
    first, second, third = (double(kept, source) for _ in range(3))
    assert first is not second
    assert second is third
    assert kept.nbytes == source.nbytes
    np.testing.assert_array_equal(third, source + source)


def test_it_goes_with_its_source():
    kept, sources = DerivedConstants(), [np.ones(N, np.float32), np.ones(N, np.float32)]
    for _ in range(2):
        kept.get("sum", tuple(sources), lambda: sources[0] + sources[1])
    assert kept.nbytes
    sources.pop()
    gc.collect()
    assert not kept.nbytes


def test_other_sources_and_other_ways_are_told_apart():
    kept, source, other = DerivedConstants(), np.ones(N, np.float32), np.full(N, 3, np.float32)
    for _ in range(2):
        found = [double(kept, source), double(kept, other), kept.get("triple", (source,), lambda: source * 3)]
    assert [array[0] for array in found] == [2, 6, 3]


def test_little_and_too_much_is_not_kept():
    kept, small, large = DerivedConstants(4 * N), np.ones(N // 4, np.float32), np.ones(2 * N, np.float32)
    assert double(kept, small) is not double(kept, small)
    double(kept, large)
    assert double(kept, large) is not double(kept, large)
    assert not kept.nbytes


@pytest.mark.parametrize("shape", [(), (1,), (3, 2)])
def test_values_have_the_shape_of_their_type(shape):
    """A scalar too, which NumPy would give an axis to make it contiguous."""
    source = np.asfortranarray(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
    for way in (evaluated, evaluated_densely):
        found = way(View(shape), [source])
        assert found.shape == shape
        np.testing.assert_array_equal(found, source)
    assert found.flags.c_contiguous


def test_views_of_a_source_are_not_kept():
    """They would keep it: 2 × 3 seen as 3 × 2."""
    source = np.ones((2, N), np.float32)
    for op in (View((N, 2)), Transpose((1, 0))):
        found = [evaluated(op, [source]) for _ in range(3)]
        want = source.reshape(N, 2) if isinstance(op, View) else source.T
        for each in found:
            np.testing.assert_array_equal(each, want)
