"""Elements gathered from, and put at, positions that an array of indices has."""

from __future__ import annotations

import math

import numpy as np

from brickrt.graph.host.helpers import run_items
from brickrt.graph.host.operators.flat_places import AT_ONCE, places_along, places_at
from brickrt.ops.cpu.fixed_function import item_loop
from brickrt.ops.cpu.host_loops import SCATTER_BLOCK, SCATTER_WORDS, in_order
from brickrt.ops.definitions.slices import slice_start

UNCOMPILED_ELEMENTS = 1 << 16
"""Elements that NumPy puts in less time than a process takes to compile the loop."""
MULTI_INDEX_ELEMENTS = 1 << 12
"""Elements that NumPy reads at indices of several parts before there is one number for each."""
WHOLE_ROW_ELEMENTS = 1 << 8
"""Elements of rows that are combined whole."""
CROWDED_UPDATES = 8
"""Updates for each place, from which on they are combined one by one."""

_COMBINE: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def elements_along(x: np.ndarray, indices: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """The position that each element of `indices` names along `axis`, its own along the others."""
    if indices.ndim != x.ndim or not x.ndim:
        raise ValueError(f"indices of {indices.ndim} dimensions do not suit data of {x.ndim}")
    at, last = axis % x.ndim, x.ndim - 1
    return tuple(
        indices if k == at else np.arange(extent).reshape((extent, *(1,) * (last - k)))
        for k, extent in enumerate(indices.shape)
    )


def scattered(x: np.ndarray, where: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str | None) -> np.ndarray:
    """x with `updates` put, or combined (add, mul, max, min), at positions, an array of them per axis, of the first
    axes at least."""
    if reduction in _COMBINE and where and x.size:
        return _combined(x, where, updates, _COMBINE[reduction])
    result = x.copy()
    result[where] = updates
    return result


def _combined(x: np.ndarray, where: tuple[np.ndarray, ...], updates: np.ndarray, combine: np.ufunc) -> np.ndarray:
    """x with updates combined, one after the other: whole rows, and short rows element by element."""
    shape, inner = x.shape[: len(where)], x.shape[len(where) :]
    places, width = places_at(where, shape), math.prod(inner)
    result = np.array(x, order="C")
    rows = result.reshape(math.prod(shape), width)
    given = np.broadcast_to(updates, (*np.broadcast_shapes(*(at.shape for at in where)), *inner))
    given = given.reshape(len(places), width)
    step = max(1, AT_ONCE // width)
    for first in range(0, len(places), step):
        at, part = places[first : first + step], given[first : first + step]
        if width >= WHOLE_ROW_ELEMENTS:
            _combine_rows(rows, at, part, combine)
        else:
            flat = at[:, None] * width + np.arange(width)
            combine.at(result.reshape(-1), flat.reshape(-1), part.reshape(-1))
    return result


def _combine_rows(rows: np.ndarray, places: np.ndarray, updates: np.ndarray, combine: np.ufunc) -> None:
    """Combines updates with rows in rounds: each takes the first update that is left for each place. Where most are for
    few places, one by one."""
    left = np.arange(len(places))
    while left.size:
        _, first = np.unique(places[left], return_index=True)
        if len(first) * CROWDED_UPDATES < len(left):
            break
        taken = left[first]
        at = places[taken]
        rows[at] = combine(rows[at], updates[taken])
        left = np.delete(left, first)
    for place, update in zip(places[left].tolist(), updates[left]):
        combine(rows[place], update, out=rows[place], casting="same_kind")


def gathered_elements(x: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    """The elements of x at the positions that `indices` has along an axis; they are of its shape."""
    if indices.size <= MULTI_INDEX_ELEMENTS or not _fit(x, indices, axis):
        return x[elements_along(x, indices, axis)]
    at, flat = axis % x.ndim, np.ascontiguousarray(x).reshape(-1)
    out = np.empty(indices.shape, x.dtype)
    parts = out.reshape(math.prod(out.shape[:at]), out.shape[at], math.prod(out.shape[at + 1 :]))
    for block, places in places_along(indices, x.shape, at):
        flat.take(places, out=parts[block], mode="clip")  # they are known to be inside
    return out


def _fit(x: np.ndarray, indices: np.ndarray, axis: int) -> bool:
    """Whether x has all positions that `indices` has along the axes other than this."""
    pairs = enumerate(zip(indices.shape, x.shape))
    return x.ndim == indices.ndim and all(n <= e for k, (n, e) in pairs if k != axis % x.ndim)


def scattered_elements(
    x: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int, reduction: str | None = None
) -> np.ndarray:
    """x with `updates` put, or combined, at the positions that `indices`, of their shape, have along an axis. Raises
    IndexError for a position that x has not."""
    at = axis % max(1, x.ndim)
    plain = reduction not in _COMBINE and updates.dtype == x.dtype and updates.shape == indices.shape
    whole = x.ndim == indices.ndim and all(n == e for k, (n, e) in enumerate(zip(indices.shape, x.shape)) if k != at)
    if plain and whole and indices.size > UNCOMPILED_ELEMENTS and x.dtype.kind in "iufb" and x.itemsize <= 8:
        function = item_loop("moves.scatter_items", "emit_scatter", x.itemsize)
        if function is not None:
            return _scattered_by(function, x, indices, updates, at)
    if reduction in _COMBINE and updates.shape == indices.shape and x.size and _fit(x, indices, axis):
        result = np.array(x, order="C")
        parts = updates.reshape(math.prod(updates.shape[:at]), updates.shape[at], math.prod(updates.shape[at + 1 :]))
        for block, places in places_along(indices, x.shape, at):
            _COMBINE[reduction].at(result.reshape(-1), places.reshape(-1), parts[block].reshape(-1))
        return result
    return scattered(x, elements_along(x, indices, axis), updates, reduction)


def _scattered_by(function: int, x: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int) -> np.ndarray:
    """The same by a compiled loop."""
    out, wrong = np.array(x, order="C"), np.zeros(2, np.int64)
    at, given = np.ascontiguousarray(indices, np.int64), np.ascontiguousarray(updates)
    parts, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    blocks = -(-inner // SCATTER_BLOCK)
    arrays = {"out": out, "indices": at, "updates": given, "wrong": wrong}
    places = {name: array.ctypes.data for name, array in arrays.items()}
    sizes = {"extent": x.shape[axis], "rows": indices.shape[axis], "inner": inner, "blocks": blocks}
    words = in_order(SCATTER_WORDS, **places, **sizes)
    run_items(function, parts * blocks, words)
    if wrong[1]:
        raise IndexError(f"index {wrong[0]} is out of bounds for axis {axis} with size {x.shape[axis]}")
    return out


def sliced(
    x: np.ndarray, starts: np.ndarray, ends: np.ndarray, axes: np.ndarray | None, steps: np.ndarray | None
) -> np.ndarray:
    """The part of x between positions along axes."""
    count = starts.size
    where = range(count) if axes is None else axes.tolist()
    strides = [1] * count if steps is None else steps.tolist()
    spans = [slice(None)] * x.ndim
    for axis, start, end, step in zip(where, starts.tolist(), ends.tolist(), strides, strict=True):
        spans[axis] = slice(slice_start(start, x.shape[axis], step), end, step)
    return x[tuple(spans)]
