"""Gathers, scatters and parts of tensors in NumPy's own loops: ONNX's reference visits every element in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from brickrt.graph.host.operators.placed_elements import gathered_elements, scattered, scattered_elements, sliced


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


def _along(axis: int, rank: int) -> list[int]:
    """A vector's shape along one axis of a tensor."""
    return [-1 if k == axis else 1 for k in range(rank)]


class Slice(OpRun):
    """Parts of tensors; up to opset 9 positions are attributes."""

    op_domain = ""

    def _run(self, x, starts=None, ends=None, axes=None, steps=None, **_: Any):
        where, step = (None if v is None else np.ravel(v) for v in (axes, steps))
        return (sliced(x, np.ravel(starts), np.ravel(ends), where, step),)
