"""Reshapes: where the elements of a reshaped tensor lie in the original."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from brickrt.ops.regions import box_shape, settle
from brickrt.ops.types import Boxes, Shape

Segment = tuple[slice, slice]


@lru_cache(maxsize=1024)
def segments(before: Shape, after: Shape) -> tuple[Segment, ...]:
    """Cuts two shapes of equal, non-zero size into the shortest runs of axes with equal products.

    (2, 6, 5) reshaped to (2, 3, 2, 5) gives {2}|{2}, {6}|{3, 2}, {5}|{5}: indices in one run depend on that run alone.
    """
    found: list[Segment] = []
    i = j = 0
    while i < len(before) and j < len(after):
        i0, j0 = i, j
        a, b = before[i], after[j]
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a, i = a * before[i], i + 1
            else:
                b, j = b * after[j], j + 1
        found.append((slice(i0, i), slice(j0, j)))
    if i < len(before) or j < len(after):  # only axes of extent 1 are left
        found.append((slice(i, len(before)), slice(j, len(after))))
    return tuple(found)


def view_region(boxes: Boxes, before: Shape, after: Shape) -> Boxes:
    """The boxes of the original around the elements of `boxes` of the reshaped tensor.

    Exact where axes are kept or split, and where merged axes are cut along the first of them only; else the bounding
    box.
    """
    lo, hi = np.zeros((2, len(before), len(boxes)), np.int64).transpose(0, 2, 1)
    if math.prod(before):
        for source, target in segments(before, after):
            first, last = _flat_range(boxes.lo[:, target], boxes.hi[:, target], after[target])
            lo[:, source], hi[:, source] = _around(first, last, before[source])
    return settle(boxes, lo, hi, before)


def _strides(shape: Shape) -> np.ndarray:
    """Elements from one index to the next, per axis."""
    return np.asarray([math.prod(shape[axis + 1 :]) for axis in range(len(shape))], np.int64)


def _flat_range(lo: np.ndarray, hi: np.ndarray, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Row-major indices of the first and the last element of each box."""
    strides = _strides(shape)
    return (lo * strides).sum(axis=1), ((hi - 1) * strides).sum(axis=1)


def _around(first: np.ndarray, last: np.ndarray, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """The box around the row-major indices first…last: an axis is whole unless all axes before it are at one index."""
    lo, hi = np.zeros((2, len(shape), len(first)), np.int64).transpose(0, 2, 1)
    fixed = np.ones(len(first), bool)
    for axis, stride in enumerate(_strides(shape)):
        start, stop = first // stride % shape[axis], last // stride % shape[axis]
        lo[:, axis] = np.where(fixed, start, 0)
        hi[:, axis] = np.where(fixed, stop + 1, shape[axis])
        fixed &= start == stop
    return lo, hi


def view_elements(array: np.ndarray, region: Boxes, box: Boxes, before: Shape, after: Shape) -> np.ndarray:
    """The elements of `box` of the reshaped tensor out of `array`, which holds `region` of the original."""
    shape = box_shape(box)
    if array.size == math.prod(shape):
        # Both are the same elements, and both are in row-major order.
        return np.array(array).reshape(shape)
    flat = np.zeros((), np.int64)
    for axis, stride in enumerate(_strides(after)):
        index = np.arange(box.lo[0, axis], box.hi[0, axis]) * stride
        flat = flat[..., None] + index
    where = np.unravel_index(flat, before)
    return array[tuple(w - o for w, o in zip(where, region.lo[0], strict=True))]
