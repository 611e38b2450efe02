"""TopK on the host."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from brickrt.graph.host.operators.order.greatest_elements import greatest_elements

NAN = float("nan")


def by_sorting(row: list[float], count: int, largest: bool) -> list[int]:
    """What is no number is greatest; the first of equal elements comes first."""
    ranks = [np.inf if np.isnan(value) else float(value) for value in row]
    keys = [(np.isnan(value), rank) for value, rank in zip(row, ranks, strict=True)]
    first = sorted(range(len(row)), key=lambda at: keys[at], reverse=largest)  # sorting is stable, reversed too
    return first[:count]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, -0.0, 1.0, -2.0, 3.5, np.inf, -np.inf, NAN]), min_size=1, max_size=24),
    st.integers(0, 24),
    st.booleans(),
)
@example([NAN, *[1.0] * 9], 2, True)
@example([*[1.0] * 9, NAN], 2, False)
def test_any_row(row, count, largest):
    count = min(count, len(row))
    values, at = greatest_elements(np.float32(row), count, 0, largest)
    assert at.tolist() == by_sorting(row, count, largest) and at.dtype == np.int64
    assert values.tobytes() == np.float32(row)[at].tobytes()


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_few_of_many(largest, dtype, axis):
    """Many elements are equal, so that some of them count and others do not."""
    x = np.random.default_rng(0).integers(0, 9, (40, 41, 42)).astype(dtype)
    values, at = greatest_elements(x, 7, axis, largest)
    order = np.argsort(-x.astype(np.int64) if largest else x, axis, kind="stable")
    assert (at == order.take(range(7), axis)).all()
    assert (values == np.take_along_axis(x, at, axis)).all() and values.dtype == dtype


def test_no_rows():
    values, at = greatest_elements(np.ones((0, 9), np.float32), 2, 1, True)
    assert values.shape == at.shape == (0, 2)
