"""Boxes that suppression keeps: compiled, in NumPy and by the definition, pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickrt.graph.host.operators import suppressed_boxes
from brickrt.graph.host.operators.suppressed_boxes import suppressed, suppressed_in_numpy

THRESHOLDS = st.sampled_from([0.0, 0.3, 0.5, 1.0])


def drawn_boxes(seed: int, count: int, extent: int) -> np.ndarray:
    """Boxes of whole numbers, so that overlaps are often exactly at the threshold; some are points, one in ten has a
    corner that is no number."""
    rng = np.random.default_rng(seed)
    corners = np.sort(rng.integers(0, extent, (count, 2, 2)), axis=1).astype(np.float32)
    boxes = corners.reshape(count, 4)
    boxes[rng.random((count, 4)) < 0.025] = np.nan
    return boxes


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


@given(st.integers(0, 99), st.integers(0, 40), st.integers(1, 30), st.integers(0, 45), THRESHOLDS)
def test_both_keep_what_the_definition_keeps(seed: int, count: int, extent: int, limit: int, threshold: float):
    boxes = drawn_boxes(seed, count, extent)
    wanted = by_definition(boxes, limit, np.float32(threshold))
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    assert suppressed_in_numpy(boxes, areas, limit, np.float32(threshold)).tolist() == wanted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suppressed_boxes, "FEW", -1)
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
