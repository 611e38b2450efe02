"""Places of elements in arrays as one number each: NumPy reads and combines elements of vectors in a fifth of the time
that it takes where an index has several parts. Blocks of them stay in a cache."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

AT_ONCE = 1 << 16
"""Elements of a block."""
Block = tuple[slice, slice]
"""Of an array [before the axis, along it, behind it]: from where to where along the first two."""


def places_along(indices: np.ndarray, shape: tuple[int, ...], axis: int) -> Iterator[tuple[Block, np.ndarray]]:
    """The places, in a row-major array of this shape, of the elements that `indices` name along an axis, block by
    block in order. Raises IndexError for one that is not there."""
    steps = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    sides = slice(axis), slice(axis + 1, None)
    before, behind = (_places_of(indices.shape[side], shape[side], steps[side]) for side in sides)
    parts = indices.reshape(len(before), indices.shape[axis], len(behind))
    for block in _blocks(*parts.shape):
        at = inside(parts[block], shape[axis], axis) * steps[axis]
        at += before[block[0], None, None]
        at += behind
        yield block, at


def places_at(where: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
    """The places of the parts that arrays of indices name along the first axes of a row-major array of this shape, as
    a vector; parts are counted. Raises IndexError for one that is not there."""
    total = np.zeros(1, np.int64)
    for axis, at in enumerate(where):
        total = total * shape[axis] + inside(at, shape[axis], axis)
    return total.reshape(-1)


def inside(indices: np.ndarray, extent: int, axis: int) -> np.ndarray:
    """Indices counted from the front, int64, an array of their own. Raises IndexError for one beyond the extent."""
    at = indices.astype(np.int64)
    least, most = at.min(initial=0), at.max(initial=-1)
    if least < -extent or most >= extent:
        wrong = most if most >= extent else least
        raise IndexError(f"index {wrong} is out of bounds for axis {axis} with size {extent}")
    if least < 0:
        at += (at < 0) * extent
    return at


def _places_of(extents: tuple[int, ...], shape: tuple[int, ...], steps: Sequence[int]) -> np.ndarray:
    """The places, in order, of the first elements along some axes of this shape."""
    if extents == shape:
        return np.arange(math.prod(extents)) * (steps[-1] if steps else 1)
    total = np.zeros(1, np.int64)
    for extent, step in zip(extents, steps, strict=True):
        total = (total[:, None] + np.arange(extent) * step).reshape(-1)
    return total


def _blocks(before: int, along: int, behind: int) -> Iterator[Block]:
    """Whole parts before the axis, or some of the positions along it of one part."""
    if along * behind <= AT_ONCE:
        step = max(1, AT_ONCE // max(1, along * behind))
        yield from ((slice(first, first + step), slice(None)) for first in range(0, before, step))
        return
    step = max(1, AT_ONCE // behind)
    yield from ((slice(k, k + 1), slice(first, first + step)) for k in range(before) for first in range(0, along, step))
