"""The boxes of each class that suppression keeps, against ONNX Runtime and the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.graph.host.operators import non_max_suppression, suppressed_boxes
from brickrt.graph.host.operators.suppressed_boxes import suppressed_in_numpy
from tests.support.graphs.onnx_models import compare_on_host

RANDOM = np.random.default_rng(2)


@pytest.mark.parametrize("center_point_box", [0, 1])
@pytest.mark.parametrize("few", [4, 1 << 10])
def test_overlapping_boxes(center_point_box: int, few: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(non_max_suppression, "WORD_SORT_ELEMENTS", few)
    boxes, scores = RANDOM.random((2, 60, 4), np.float32), RANDOM.random((2, 3, 60), np.float32)
    thresholds = [np.array([v], np.float32) for v in (0.4, 0.3)]
    kept = compare_on_host(
        "NonMaxSuppression", boxes, scores, np.array([40]), *thresholds, center_point_box=center_point_box
    )
    assert 0 < len(kept) < 240
    kept = compare_on_host(
        "NonMaxSuppression", boxes, scores, np.array([3]), *thresholds, center_point_box=center_point_box
    )
    assert len(kept) == 18


def test_boxes_without_limits():
    boxes, scores = RANDOM.random((1, 10, 4), np.float32), RANDOM.random((1, 1, 10), np.float32)
    assert len(compare_on_host("NonMaxSuppression", boxes, scores)) == 0


def test_many_small_classes_are_compared_in_compiled_code(monkeypatch: pytest.MonkeyPatch):
    """NumPy takes 0.1 ms for each box that is kept: 80 classes of 100 took it most of a second."""
    boxes, scores = RANDOM.random((1, 600, 4), np.float32), RANDOM.random((1, 80, 600), np.float32)
    monkeypatch.setattr(suppressed_boxes, "suppressed_in_numpy", lambda *_: pytest.fail("in NumPy"))
    given = np.array([100]), np.array([0.5], np.float32), np.array([0.2], np.float32)
    assert len(compare_on_host("NonMaxSuppression", boxes, scores, *given)) > 1000


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 99),
    st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.4, np.nan, -np.inf]), min_size=1, max_size=40),
    st.integers(0, 20),
    st.sampled_from([None, 0.1, 0.25]),
)
def test_the_best_alone_are_looked_at_where_they_are_enough(
    seed: int, scores: list[float], limit: int, floor: float | None
):
    score = np.float32(scores)
    low = np.random.default_rng(seed).integers(0, 12, (len(score), 2))
    corners = np.concatenate([low, low + 5], 1).astype(np.float32)
    order = np.argsort(-score, kind="stable")
    order = order if floor is None else order[score[order] > floor]
    wanted = order[suppressed_in_numpy(corners[order], np.full(len(order), 25, np.float32), limit, 0.3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(non_max_suppression, "WORD_SORT_ELEMENTS", 2)
        patch.setattr(non_max_suppression, "LOOKED_AT", 2)
        kept = non_max_suppression._kept(corners, score, floor, limit, 0.3, 1)
    assert kept.tolist() == wanted.tolist()
