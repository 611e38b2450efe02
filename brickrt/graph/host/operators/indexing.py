"""Gathers, scatters and parts of tensors in NumPy's own loops: ONNX's reference visits every element in Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from brickrt.graph.host.host_operator import Attributes, HostOperator, evaluates
from brickrt.graph.host.node_arrays import Arrays, integers, shape_of, size_of
from brickrt.graph.host.operators.placed_elements import gathered_elements, scattered, scattered_elements, sliced


@evaluates(HostOperator(elements=None), "GatherElements")
def _gather_elements(x, indices, axis=0, **_: Any):
    """x at the positions that `indices` has along an axis."""
    return (gathered_elements(x, indices, axis),)


@evaluates(HostOperator(elements=None), "ScatterElements", "Scatter")
def _scatter_elements(x, indices, updates, axis=0, reduction=None, **_: Any):
    """x with `updates` put, or combined, at positions along an axis; Scatter is its older name."""
    return (scattered_elements(x, indices, updates, axis, reduction),)


def _parts(arrays: Arrays, at: Attributes) -> int:
    shape, places = shape_of(arrays), shape_of(arrays, 1)
    return size_of([*places[:-1], *shape[at.get("batch_dims", 0) + places[-1] :]])


@evaluates(HostOperator(_parts), "GatherND")
def _gather_nd(x, indices, batch_dims=0, **_: Any):
    """The parts of x whose leading indices are the rows of `indices`."""
    rank = indices.ndim - 1
    batches = [np.arange(indices.shape[k]).reshape(_along(k, rank)) for k in range(batch_dims)]
    return (x[(*batches, *np.moveaxis(indices, -1, 0))],)


@evaluates(HostOperator(elements=None), "ScatterND")
def _scatter_nd(x, indices, updates, reduction=None, **_: Any):
    """x with `updates` put, or combined, at the rows of `indices`."""
    return (scattered(x, tuple(np.moveaxis(indices, -1, 0)), updates, reduction),)


@evaluates(HostOperator(lambda arrays, at: size_of([*shape_of(arrays), integers(arrays[1])[0]])), "OneHot")
def _one_hot(indices, depth, values, axis=-1, **_: Any):
    """One-hot vectors; the depth may be a tensor of one element, which the reference refuses."""
    count = int(np.asarray(depth).reshape(-1)[0])
    place, off_on = np.asarray(indices).astype(np.int64), values.reshape(-1)
    hit = np.expand_dims(np.where(place < 0, place + count, place), axis)
    counter = np.arange(count).reshape(_along(axis % hit.ndim, hit.ndim))
    return (np.where(hit == counter, off_on[1], off_on[0]).astype(values.dtype),)


def _along(axis: int, rank: int) -> list[int]:
    """A vector's shape along one axis of a tensor."""
    return [-1 if k == axis else 1 for k in range(rank)]


@evaluates(HostOperator(elements=None, temporaries=0), "Slice")
def _slice(x, starts=None, ends=None, axes=None, steps=None, **_: Any):
    """Parts of tensors; up to opset 9 positions are attributes."""
    where, step = (None if v is None else np.ravel(v) for v in (axes, steps))
    return (sliced(x, np.ravel(starts), np.ravel(ends), where, step),)
