"""Gathers, scatters and box suppression in NumPy's own loops: ONNX's reference visits every element in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from brickrt.graph.host.operators.placed_elements import gathered_elements, scattered, scattered_elements, sliced
from brickrt.graph.host.operators.suppressed_boxes import suppressed


class GatherElements(OpRun):
    """x at the positions that `indices` has along an axis."""

    op_domain = ""

    def _run(self, x, indices, axis=0, **_: Any):
        return (gathered_elements(x, indices, axis),)


class ScatterElements(OpRun):
    """x with `updates` put, or combined, at positions along an axis."""

    op_domain = ""

    def _run(self, x, indices, updates, axis=0, reduction=None, **_: Any):
        return (scattered_elements(x, indices, updates, axis, reduction),)


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
        found = list[np.ndarray]()
        for batch, (corners, classes) in enumerate(zip(_corners(boxes, center_point_box), scores, strict=True)):
            for number, score in enumerate(classes):
                order = np.argsort(-score, kind="stable")
                order = order[score[order] > floor] if floor is not None else order
                kept = order[suppressed(corners[order], limit, threshold)]
                found.append(np.column_stack((np.full((len(kept), 2), (batch, number)), kept)))
        return (np.concatenate([np.empty((0, 3), np.int64), *found]),)


def _along(axis: int, rank: int) -> list[int]:
    """A vector's shape along one axis of a tensor."""
    return [-1 if k == axis else 1 for k in range(rank)]


def _corners(boxes: np.ndarray, centered: int) -> np.ndarray:
    """Boxes [batch, count, 4] as two opposite corners, the lesser first."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centered:
        return np.concatenate([first - second / 2, first + second / 2], -1)
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


class Slice(OpRun):
    """Parts of tensors; up to opset 9 positions are attributes."""

    op_domain = ""

    def _run(self, x, starts=None, ends=None, axes=None, steps=None, **_: Any):
        where, step = (None if v is None else np.ravel(v) for v in (axes, steps))
        return (sliced(x, np.ravel(starts), np.ravel(ends), where, step),)
