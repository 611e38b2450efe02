"""Elements gathered from, and put at, positions that an array of indices has."""

from __future__ import annotations

import numpy as np

_COMBINE: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def elements_along(x: np.ndarray, indices: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """The position that each element of `indices` names along `axis`, its own along the others."""
    if indices.ndim != x.ndim:
        raise ValueError(f"indices of {indices.ndim} dimensions do not suit data of {x.ndim}")
    grids = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    grids[axis % x.ndim] = indices
    return tuple(grids)


def scattered(x: np.ndarray, where: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str | None) -> np.ndarray:
    """x with `updates` put, or combined (add, mul, max, min), at positions, an array of them per axis."""
    result = x.copy()
    if reduction in _COMBINE:
        _COMBINE[reduction].at(result, where, updates)
    else:
        result[where] = updates
    return result


def gathered_elements(x: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    """The elements of x at the positions that `indices` has along an axis; they are of its shape."""
    return x[elements_along(x, indices, axis)]


def scattered_elements(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int) -> np.ndarray:
    """x with `updates` put at the positions that `indices`, of their shape, have along an axis."""
    return scattered(x, elements_along(x, indices, axis), updates, None)
