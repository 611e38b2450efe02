"""Elements put at positions of a tensor: constants, or one in each line."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import normal_axis, take, view
from brickrt.graph.builders.shapes.indexing import MOST_INDICES, check_rank, constant_positions
from brickrt.graph.builders.shapes.one_hot import with_one_replaced
from brickrt.graph.errors import Unsupported
from brickrt.ops.operators.move import Concat

_MOST_ELEMENTS = 1 << 23
"""Elements of indices that are looked at to find that they are a box."""


@builds("ScatterND")
def scatter_parts(b: Builder, node: OnnxNode) -> str:
    """A tensor with updates put at constant positions along its first axes. Assignments to slices are exported so."""
    x, updates = node.inputs[0], node.inputs[2]
    indices, shape = _positions(b, node), b.type(x).shape
    if not indices.ndim or not 0 < indices.shape[-1] <= len(shape):
        raise ValueError(f"indices {list(indices.shape)} are not positions in a tensor {list(shape)}")
    depth = indices.shape[-1]
    if b.type(updates).shape != (*indices.shape[:-1], *shape[depth:]):
        raise ValueError(f"updates {list(b.type(updates).shape)} do not suit indices {list(indices.shape)}")
    return _placed(b, x, indices, updates)


@builds("Scatter", "ScatterElements")
def scatter_elements(b: Builder, node: OnnxNode) -> str:
    """A tensor with updates put at constant positions along an axis, or one in each line at a computed position."""
    x, updates, shape = node.inputs[0], node.inputs[2], b.type(node.inputs[0]).shape
    axis = normal_axis(node.attrs.get("axis", 0), len(shape))
    if node.attrs.get("reduction", "none") in ("none", b"none") and b.known(node.inputs[1]) is None:
        found = with_one_replaced(b, (x, node.inputs[1], updates), axis)
        if found is not None:
            return found
    indices = _positions(b, node)
    check_rank(indices, len(shape))
    if b.type(updates).shape != indices.shape:
        raise ValueError(f"updates {list(b.type(updates).shape)} do not suit indices {list(indices.shape)}")
    at = np.indices(indices.shape, np.int64)
    at[axis] = indices
    return _placed(b, x, np.moveaxis(at, 0, -1), updates)


def _positions(b: Builder, node: OnnxNode) -> np.ndarray:
    """Constant positions of updates that replace elements. Raises Unsupported for those that are combined."""
    how = node.attrs.get("reduction", "none")
    if how not in ("none", b"none"):
        raise Unsupported(f"{node.op_type} with reduction {how}")
    indices = constant_positions(b, node, _MOST_ELEMENTS)
    if not indices.size:
        raise Unsupported("no positions")
    return indices.astype(np.int64)


def _placed(b: Builder, x: str, at: np.ndarray, updates: str) -> str:
    """x with updates at positions […, K] along its first K axes: by parts where these are a box, else row by row."""
    shape, depth = b.type(x).shape, at.shape[-1]
    extents = np.array(shape[:depth], np.int64)
    if np.any((at < -extents) | (at >= extents)):
        raise ValueError(f"an index is outside a tensor {list(shape)}")
    at = np.where(at < 0, at + extents, at)
    sides = _box(at)
    if sides is not None:
        part = view(b, updates, (*map(len, sides), *shape[depth:]))
        return _into_box(b, x, part, sides, 0)
    return _row_by_row(b, x, at.reshape(-1, depth) @ _strides(shape[:depth]), updates, depth)


def _box(at: np.ndarray) -> list[list[int]] | None:
    """The positions along each of K axes whose combinations are `at` [n0, …, K], of which each axis but the last counts
    those of one; None where no such are, and where the box has been reshaped."""
    depth = at.shape[-1]
    if at.ndim - 1 != depth:
        return None
    starts = [tuple(slice(None) if k == axis else 0 for k in range(depth)) for axis in range(depth)]
    lines = [at[(*start, axis)] for axis, start in enumerate(starts)]
    if any(len(np.unique(line)) < len(line) for line in lines):
        return None
    grids = np.meshgrid(*lines, indexing="ij", sparse=True)
    same = all(bool((at[..., axis] == grid).all()) for axis, grid in enumerate(grids))
    return [line.tolist() for line in lines] if same else None


def _into_box(b: Builder, x: str, part: str, sides: Sequence[Sequence[int]], axis: int) -> str:
    """x with `part` at the combinations of `sides`, positions along the axes from `axis` on."""
    shape = b.type(x).shape
    while axis < len(sides) and list(sides[axis]) == list(range(shape[axis])):
        axis += 1
    if axis == len(sides):
        return part
    side = sides[axis]
    inner = _into_box(b, take(b, x, {axis: side}), part, sides, axis + 1)
    first, end = side[0], side[0] + len(side)
    if list(side) != list(range(first, end)):
        table = np.arange(shape[axis])
        table[list(side)] = shape[axis] + np.arange(len(side))
        return take(b, b.emit(Concat(axis), x, inner), {axis: table.tolist()})
    before = [take(b, x, {axis: range(first)})] if first else []
    behind = [take(b, x, {axis: range(end, shape[axis])})] if end < shape[axis] else []
    parts = [*before, inner, *behind]
    return b.emit(Concat(axis), *parts) if len(parts) > 1 else inner


def _row_by_row(b: Builder, x: str, rows: np.ndarray, updates: str, depth: int) -> str:
    """x with updates at `rows` of its first `depth` axes as one; of several for a row the last counts."""
    shape = b.type(x).shape
    count, rest = math.prod(shape[:depth]), shape[depth:]
    if count > MOST_INDICES:
        raise Unsupported(f"updates among {count} positions")
    table = np.arange(count)
    table[rows] = count + np.arange(len(rows))  # NumPy, too, leaves the last
    both = b.emit(Concat(0), view(b, x, (count, *rest)), view(b, updates, (len(rows), *rest)))
    return view(b, take(b, both, {0: table.tolist()}), shape)


def _strides(shape: Sequence[int]) -> np.ndarray:
    """How many rows apart neighbours along each axis lie."""
    return np.array([math.prod(shape[axis + 1 :]) for axis in range(len(shape))], np.int64)
