"""Reading and writing through a conversion of types, in pieces that need little memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from brickrt.runtime.files.boxes import Extents, added, pieces, slices

Transfer = Callable[[Extents, np.ndarray], None]
Convert = Callable[[np.ndarray], np.ndarray]


def read_converted(read: Transfer, stored: np.dtype, convert: Convert, lo: Extents, out: np.ndarray) -> None:
    """Fills `out` with `convert` of what `read` gives in the type `stored`. Takes 4 MiB at most."""
    for offset, extents in pieces(out.shape, 8):
        piece = np.empty(extents, stored)
        read(added(lo, offset), piece)
        out[slices(offset, extents)] = convert(piece)


def write_converted(write: Transfer, stored: np.dtype, convert: Convert, lo: Extents, array: np.ndarray) -> None:
    """Writes `convert` of the array, in the type `stored`. Takes 4 MiB at most."""
    for offset, extents in pieces(array.shape, 8):
        write(added(lo, offset), convert(array[slices(offset, extents)]).astype(stored, copy=False))
