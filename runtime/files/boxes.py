"""Boxes of arrays: checks, and cutting them into pieces of bounded size.

A box is where it begins, `lo`, and its extents, one number for each axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from brickrt.graph.errors import InputError

Extents = tuple[int, ...]

PIECE_BYTES = 1 << 20
"""What is read or converted at a time, where that needs memory besides the caller's."""

CHANNELS = (1, 3, 4)
"""How many channels images have, where only the extents can tell."""


def check_box(name: str, shape: Extents, dtype: np.dtype, lo: Extents, array: np.ndarray) -> None:
    """Refuses a box that is not inside `shape`, or an array of another type."""
    if array.dtype != dtype:
        raise InputError(f"{name}: holds {dtype}, the array is {array.dtype}: give one of {dtype}")
    inside = len(lo) == len(shape) == array.ndim and all(
        0 <= begin <= begin + extent <= whole for begin, extent, whole in zip(lo, array.shape, shape)
    )
    if not inside:
        raise InputError(
            f"{name}: has the shape {list(shape)}: there is no box {list(array.shape)} at {list(lo)} in it"
        )


def slices(lo: Extents, extents: Extents) -> tuple[slice, ...]:
    """The box as an index of NumPy's."""
    return tuple(slice(begin, begin + extent) for begin, extent in zip(lo, extents))


def added(lo: Extents, offset: Extents) -> Extents:
    """The sum, axis by axis."""
    return tuple(a + b for a, b in zip(lo, offset))


def steps(extents: Extents, fits: Callable[[Extents], bool]) -> Extents:
    """The largest extents of pieces that fit, cut along the outermost axes; one element always fits.

    `fits` must hold for all smaller pieces where it holds for one.
    """
    piece = list(extents)
    for axis in range(len(piece)):
        while piece[axis] > 1 and not fits(tuple(piece)):
            piece[axis] = (piece[axis] + 1) // 2
    return tuple(piece)


def cut(extents: Extents, piece: Extents) -> Iterator[tuple[Extents, Extents]]:
    """The pieces of a box in row-major order, each as its offset in the box and its extents; those at ends are
    smaller."""
    if 0 in extents:
        return
    for offset in product(*(range(0, whole, step) for whole, step in zip(extents, piece))):
        yield offset, tuple(min(step, whole - o) for o, step, whole in zip(offset, piece, extents))


def pieces(extents: Extents, itemsize: int, most: int = PIECE_BYTES) -> Iterator[tuple[Extents, Extents]]:
    """Cuts a box into pieces of at most `most` bytes, which follow each other in row-major order."""
    return cut(extents, steps(extents, lambda piece: math.prod(piece) * itemsize <= most))


def as_bytes(array: np.ndarray) -> memoryview:
    """The memory of a row-major array."""
    return array.reshape(-1).view(np.uint8).data


def usual_axis(shape: Extents) -> int:
    """The axis of rows, where nobody says which: 2 of NCHW and NCDHW, 1 of CHW, else the first."""
    if len(shape) >= 4:
        return 2
    return 1 if len(shape) == 3 and shape[0] in CHANNELS and shape[-1] not in CHANNELS else 0


def nonempty(name: str, shape: Extents) -> Extents:
    """The shape in Python's integers. Refuses arrays without axes or without elements, which have no rows to stream."""
    if not shape or 0 in shape:
        raise InputError(f"{name}: has the shape {list(shape)}, which holds no rows: give an array with some")
    return tuple(map(int, shape))


def number_type(name: str, dtype: object) -> np.dtype:
    """The type in this machine's byte order. Refuses what are no plain numbers."""
    found = np.dtype(dtype)  # type: ignore[call-overload]
    if found.hasobject or found.names is not None or found.kind in "OSUmM":
        raise InputError(f"{name}: holds {found}, which are no numbers: save an array of numbers")
    return found.newbyteorder("=")
