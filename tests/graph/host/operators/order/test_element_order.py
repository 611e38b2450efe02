"""Order by integers, against NumPy's stable sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.graph.host.operators.order import element_order
from brickrt.graph.host.operators.order.element_order import ordered_places

TINY = float(np.finfo(np.float32).smallest_subnormal)
VALUES = [0.0, -0.0, 1.0, -1.0, 1.5, -2.5, TINY, -TINY, 3e38, -3e38, np.inf, -np.inf]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*VALUES, np.nan, -np.nan]), min_size=1, max_size=30), st.booleans(), st.integers(1, 3))
def test_any_elements(values: list[float], largest: bool, rows: int):
    x = np.stack([np.roll(np.float32(values), k) for k in range(rows)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(element_order, "WORD_SORT_ELEMENTS", 1)
        places = ordered_places(x, largest)
    for row, found in zip(x, places, strict=True):
        ranks = [(bool(np.isnan(value)), 0.0 if np.isnan(value) else float(value)) for value in row]
        assert found.tolist() == sorted(range(len(row)), key=ranks.__getitem__, reverse=largest)
    assert places.dtype == np.int64


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
def test_many_elements(dtype: type, largest: bool):
    x = np.random.default_rng(0).standard_normal((3, 5000)).round(2).astype(dtype)
    wanted = np.argsort(-x if largest else x, -1, kind="stable")
    assert (ordered_places(x, largest) == wanted).all()
