"""NonMaxSuppression: of each image and class the boxes that overlap no better one too much.

What a threshold leaves of the scores is put in order, and no more of it than is likely to be looked at: detectors give
tens of thousands of boxes for each class, of which a few hundred are kept at most.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from brickrt.graph.host.host_operator import Attributes, HostOperator, evaluates
from brickrt.graph.host.node_arrays import Arrays, input_at, shape_of
from brickrt.graph.host.operators.order.element_order import WORD_SORT_ELEMENTS, ordered_places
from brickrt.graph.host.operators.suppressed_boxes import suppressed

LOOKED_AT = 8  # boxes for each that may be kept, which are tried before all are


def _pairs(arrays: Arrays, at: Attributes) -> int:
    """Every box with every other."""
    boxes, scores = shape_of(arrays), shape_of(arrays, 1)
    most = input_at(arrays, 2)
    kept = boxes[1] if most is None else max(0, min(boxes[1], int(most.reshape(-1)[0])))
    return 32 * math.prod(scores[:2]) * boxes[1] * kept


@evaluates(HostOperator(elements=None, products=_pairs), "NonMaxSuppression")
def _non_max_suppression(boxes, scores, most=None, overlap=None, least=None, center_point_box=0, **_: Any):
    """The best boxes first; a box is dropped where it overlaps a better one of its class beyond the threshold."""
    limit, threshold = (0 if v is None else v.reshape(-1)[0] for v in (most, overlap))
    floor = None if least is None or not least.size else least.reshape(-1)[0]
    alike = scores.shape[0] * scores.shape[1]
    found = list[np.ndarray]()
    for batch, (corners, classes) in enumerate(zip(_corners(boxes, center_point_box), scores, strict=True)):
        for number, score in enumerate(classes):
            kept = _kept(corners, score, floor, int(limit), threshold, alike)
            found.append(np.column_stack((np.full((len(kept), 2), (batch, number)), kept)))
    return (np.concatenate([np.empty((0, 3), np.int64), *found]),)


def _kept(
    corners: np.ndarray, score: np.ndarray, floor: float | None, limit: int, threshold: float, alike: int
) -> np.ndarray:
    """The boxes of one class that are kept, the best one first, for a node of so many classes `alike`."""
    fit = np.arange(score.size) if floor is None else np.flatnonzero(score > floor)
    least_first = -score[fit]  # what is no number is greatest in order, and last so
    few = max(WORD_SORT_ELEMENTS, LOOKED_AT * limit)
    if few < fit.size:
        best = np.flatnonzero(least_first <= np.partition(least_first, few)[few])
        order = fit[best[ordered_places(least_first[best], largest=False)]]
        kept = suppressed(corners[order], limit, threshold, alike)
        if len(kept) == limit:
            return order[kept]
    order = fit[ordered_places(least_first, largest=False)]
    return order[suppressed(corners[order], limit, threshold, alike)]


def _corners(boxes: np.ndarray, centered: int) -> np.ndarray:
    """Boxes [batch, count, 4] as two opposite corners, the lesser first. Whole columns are computed: along the pairs of
    a box NumPy's loops are of two elements, and take ten times as long."""
    a, b, c, d = (boxes[..., k] for k in range(4))
    if centered:
        return np.stack([a - c / 2, b - d / 2, a + c / 2, b + d / 2], -1)
    return np.stack([np.minimum(a, c), np.minimum(b, d), np.maximum(a, c), np.maximum(b, d)], -1)
