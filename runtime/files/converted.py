"""Reading and writing through a conversion of types, in pieces that need little memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from brickrt.graph.errors import InputError
from brickrt.runtime.files.boxes import Extents, added, pieces, slices

Transfer = Callable[[Extents, np.ndarray], None]
Convert = Callable[[np.ndarray], np.ndarray]


def check_convertible(name: str, stored: np.dtype, kind: np.dtype) -> None:
    """Refuses a file of numbers of the type `stored` for a model that takes `kind`, where a fraction or an imaginary
    part would be lost."""
    if stored.kind == "V" and stored.names is None and stored.type is np.void:
        raise InputError(f"{name}: holds {stored.itemsize} bytes an element without a type: save it as float32")
    lost = not np.can_cast(stored, kind, "same_kind") and stored.kind not in "biu"
    if lost or (stored.kind == "c" and kind.kind != "c"):
        raise InputError(f"{name}: holds {stored}, the model takes {kind}: convert the file")


def as_kind(name: str, values: np.ndarray, kind: np.dtype) -> np.ndarray:
    """The numbers as they are, in the type that the model takes. Raises InputError for whole numbers that do not fit
    into a smaller type; floats that do not are infinite."""
    if kind.kind in "iu" and values.dtype.kind in "iu" and values.size and not np.can_cast(values.dtype, kind):
        bounds, ends = np.iinfo(kind), (int(values.min()), int(values.max()))
        wrong = [end for end in ends if not bounds.min <= end <= bounds.max]
        if wrong:
            raise InputError(f"{name}: holds {wrong[0]}, the model takes {kind}, which has no such: convert the file")
    with np.errstate(over="ignore"):
        return values.astype(kind, copy=False)


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
