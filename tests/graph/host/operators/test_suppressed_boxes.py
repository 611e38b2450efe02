"""Boxes that suppression keeps: compiled, in NumPy and by the definition, pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.graph.host.operators import suppressed_boxes
from brickrt.graph.host.operators.suppressed_boxes import strips, suppressed, suppressed_in_numpy

THRESHOLDS = st.sampled_from([0.0, 0.3, 0.5, 1.0])


def drawn_boxes(seed: int, count: int, extent: int, lost: float = np.nan) -> np.ndarray:
    """Boxes of whole numbers, so that overlaps are often exactly at the threshold; some are points, one in ten has a
    corner that is `lost`, which is no number, infinite, or 0 where it is one of others."""
    rng = np.random.default_rng(seed)
    corners = np.sort(rng.integers(0, extent, (count, 2, 2)), axis=1).astype(np.float32)
    boxes = corners.reshape(count, 4)
    boxes[rng.random((count, 4)) < 0.025] = lost
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)


def by_definition(boxes: np.ndarray, limit: int, threshold: float) -> list[int]:
    kept: list[int] = []
    for number, one in enumerate(boxes):
        if len(kept) < limit and not any(shared(one, boxes[k]) > threshold for k in kept):
            kept.append(number)
    return kept


def shared(a: np.ndarray, b: np.ndarray) -> float:
    """The part of the union that two boxes have in common; nothing where either is no box."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    common = np.prod(np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0))
    union = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - common
    return common / union if union > 0 and np.isfinite(common) else 0.0


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 99),
    st.integers(0, 40),
    st.integers(1, 90),
    st.integers(0, 45),
    THRESHOLDS,
    st.sampled_from([0.0, 0.0, np.nan]),
    st.sampled_from([1, 3, 16]),
)
def test_both_keep_what_the_definition_keeps(seed, count, extent, limit, threshold, lost, a_strip):
    boxes = drawn_boxes(seed, count, extent, lost)
    wanted = by_definition(boxes, limit, np.float32(threshold))
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    assert suppressed_in_numpy(boxes, areas, limit, np.float32(threshold)).tolist() == wanted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suppressed_boxes, "UNCOMPILED_PAIRS", -1)
        patch.setattr(suppressed_boxes, "BOXES_A_STRIP", a_strip)
        patch.setattr(suppressed_boxes, "suppressed_in_numpy", lambda *_: pytest.fail("in NumPy"))
        assert suppressed(boxes, limit, np.float32(threshold)).tolist() == wanted


def test_without_llvm_and_for_few_it_is_numpy(monkeypatch: pytest.MonkeyPatch):
    boxes = drawn_boxes(1, 600, 400)
    wanted = suppressed(boxes, 600, np.float32(0.4))
    monkeypatch.setattr(suppressed_boxes, "_compiled", lambda: None)
    np.testing.assert_array_equal(suppressed(boxes, 600, np.float32(0.4)), wanted)
    monkeypatch.setattr(suppressed_boxes, "_compiled", lambda: pytest.fail("compiled"))
    np.testing.assert_array_equal(
        suppressed(boxes[:20], 600, np.float32(0.4)), suppressed(boxes[:20], 20, np.float32(0.4))
    )


def test_candidates_meet_all_boxes_that_they_share_something_with():
    """Boxes of all widths and at all places, also as classes are put apart: each pair that overlaps is among those
    whose strips are looked at, and most others are not."""
    rng = np.random.default_rng(2)
    corner = rng.uniform(-50, 50, (900, 2)) + rng.integers(0, 30, (900, 1)) * 1000
    boxes = np.concatenate([corner, corner + rng.exponential(20, (900, 2))], 1).astype(np.float32)
    near, sizes = strips(boxes)
    met = (near[:, None, 0] <= near[None, :, 2]) & (near[None, :, 2] <= near[:, None, 1])
    overlap = (boxes[:, None, 0] < boxes[None, :, 2]) & (boxes[None, :, 0] < boxes[:, None, 2])
    assert met[overlap].all() and met.mean() < 0.05
    np.testing.assert_array_equal(sizes, np.bincount(near[:, 2], minlength=len(sizes)))


@pytest.mark.parametrize("lost", [np.inf, -np.inf])
def test_boxes_without_end_share_nothing_that_counts(lost: float):
    boxes = drawn_boxes(3, 700, 60, lost)
    with np.errstate(invalid="ignore"):
        areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
        wanted = suppressed_in_numpy(boxes, areas, 700, np.float32(0.5))
        np.testing.assert_array_equal(suppressed(boxes, 700, np.float32(0.5)), wanted)
