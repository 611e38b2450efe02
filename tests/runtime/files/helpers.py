"""Arrays, and walks over them in boxes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from brickrt.runtime.files.boxes import Extents, cut, slices
from brickrt.runtime.files.formats.box_files import BoxSink, BoxSource


def values(shape: Extents, dtype: object, seed: int = 0) -> np.ndarray:
    """Values that all differ where the type has so many."""
    count = int(np.prod(shape))
    found = np.random.default_rng(seed).permutation(count) + 1
    return found.reshape(shape).astype(dtype)  # type: ignore[call-overload]


def box(rng: np.random.Generator, shape: Extents) -> tuple[Extents, Extents]:
    """Some box that is not empty."""
    lo = [int(rng.integers(0, extent)) for extent in shape]
    return tuple(lo), tuple(int(rng.integers(1, extent - begin + 1)) for begin, extent in zip(lo, shape))


def odd(extents: Extents, dtype: np.dtype, kind: int) -> np.ndarray:
    """An array to read into: row-major, column-major, or with gaps."""
    if kind == 0:
        return np.zeros(extents, dtype)
    if kind == 1:
        return np.zeros(extents[::-1], dtype).T
    return np.zeros(tuple(2 * extent for extent in extents), dtype)[tuple(slice(1, None, 2) for _ in extents)]


def check_reads(source: BoxSource, want: np.ndarray, times: int = 12) -> None:
    """Compares boxes at random places, into arrays with all kinds of strides, and then rows in turn."""
    assert source.shape == want.shape and source.dtype == want.dtype.newbyteorder("=")
    rng = np.random.default_rng(want.size)
    for k in range(times):
        lo, extents = box(rng, want.shape)
        out = odd(extents, source.dtype, k % 3)
        source.read(lo, out)
        np.testing.assert_array_equal(out, want[slices(lo, extents)])
    np.testing.assert_array_equal(swept(source, 3), want)


def swept(source: BoxSource, rows: int) -> np.ndarray:
    """All of a source, read by rows along its axis."""
    whole = np.zeros(source.shape, source.dtype)
    for begin in range(0, source.shape[source.axis], rows):
        at = (*[slice(None)] * source.axis, slice(begin, begin + rows))
        lo = tuple(begin if axis == source.axis else 0 for axis in range(len(source.shape)))
        source.read(lo, whole[at])
    return whole


def shuffled(shape: Extents, piece: Extents, seed: int = 0) -> Iterator[tuple[Extents, Extents]]:
    """Boxes that cover an array, in no order."""
    boxes = list(cut(shape, piece))
    np.random.default_rng(seed).shuffle(boxes)  # type: ignore[arg-type]
    yield from ((tuple(map(int, lo)), tuple(map(int, extents))) for lo, extents in boxes)


def check_writes(sink: BoxSink, want: np.ndarray, piece: Extents) -> None:
    """Writes all boxes in no order, from arrays with all kinds of strides; reads some back, and closes the sink."""
    for k, (lo, extents) in enumerate(shuffled(want.shape, piece)):
        part = odd(extents, want.dtype, k % 3)
        part[...] = want[slices(lo, extents)]
        sink.write(lo, part)
        if k % 5 == 0:
            back = odd(extents, want.dtype, (k + 1) % 3)
            sink.read(lo, back)
            np.testing.assert_array_equal(back, part)
    sink.sync()
    sink.close()
