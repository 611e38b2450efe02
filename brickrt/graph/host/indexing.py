"""Gathers, scatters and box suppression in NumPy's own loops: ONNX's reference visits every element in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from brickrt.graph.host.placed_elements import elements_along, gathered_elements, scattered


class GatherElements(OpRun):
    """x at the positions that `indices` has along an axis."""

    op_domain = ""

    def _run(self, x, indices, axis=0, **_: Any):
        return (gathered_elements(x, indices, axis),)


class ScatterElements(OpRun):
    """x with `updates` put, or combined, at positions along an axis."""

    op_domain = ""

    def _run(self, x, indices, updates, axis=0, reduction=None, **_: Any):
        return (scattered(x, elements_along(x, indices, axis), updates, reduction),)


class Scatter(ScatterElements):
    """The older name of ScatterElements."""


class GatherND(OpRun):
    """The parts of x whose leading indices are the rows of `indices`."""

    op_domain = ""

    def _run(self, x, indices, batch_dims=0, **_: Any):
        rank = indices.ndim - 1
        batches = [np.arange(indices.shape[k]).reshape(_along(k, rank)) for k in range(batch_dims)]
        return (x[(*batches, *np.moveaxis(indices, -1, 0))],)


class ScatterND(OpRun):
    """x with `updates` put, or combined, at the rows of `indices`."""

    op_domain = ""

    def _run(self, x, indices, updates, reduction=None, **_: Any):
        return (scattered(x, tuple(np.moveaxis(indices, -1, 0)), updates, reduction),)


class OneHot(OpRun):
    """One-hot vectors; the depth may be a tensor of one element, which the reference refuses."""

    op_domain = ""

    def _run(self, indices, depth, values, axis=-1, **_: Any):
        count = int(np.asarray(depth).reshape(-1)[0])
        place, off_on = np.asarray(indices).astype(np.int64), values.reshape(-1)
        hit = np.expand_dims(np.where(place < 0, place + count, place), axis)
        counter = np.arange(count).reshape(_along(axis % hit.ndim, hit.ndim))
        return (np.where(hit == counter, off_on[1], off_on[0]).astype(values.dtype),)


class NonMaxSuppression(OpRun):
    """The best boxes first; a box is dropped where it overlaps a better one of its class beyond the threshold."""

    op_domain = ""

    def _run(self, boxes, scores, most=None, overlap=None, least=None, center_point_box=0, **_: Any):
        limit, threshold = (0 if v is None else v.reshape(-1)[0] for v in (most, overlap))
        floor = None if least is None or not least.size else least.reshape(-1)[0]
        found = []
        for batch, (corners, classes) in enumerate(zip(_corners(boxes, center_point_box), scores, strict=True)):
            for number, score in enumerate(classes):
                order = np.argsort(-score, kind="stable")
                kept = _suppress(corners, order[score[order] > floor] if floor is not None else order, limit, threshold)
                found += [(batch, number, box) for box in kept]
        return (np.array(found, np.int64).reshape(-1, 3),)


def _along(axis: int, rank: int) -> list[int]:
    """A vector's shape along one axis of a tensor."""
    return [-1 if k == axis else 1 for k in range(rank)]


def _corners(boxes: np.ndarray, centered: int) -> np.ndarray:
    """Boxes [batch, count, 4] as two opposite corners, the lesser first."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centered:
        return np.concatenate([first - second / 2, first + second / 2], -1)
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


def _suppress(boxes: np.ndarray, order: np.ndarray, limit: int, threshold: float) -> list[int]:
    """At most `limit` of the boxes in this order."""
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    kept: list[int] = []
    while len(order) and len(kept) < limit:
        best, order = order[0], order[1:]
        kept.append(int(best))
        sides = np.minimum(boxes[order, 2:], boxes[best, 2:]) - np.maximum(boxes[order, :2], boxes[best, :2])
        common = np.prod(np.maximum(sides, 0), axis=1)
        order = order[~(common > threshold * (areas[order] + areas[best] - common))]
    return kept
