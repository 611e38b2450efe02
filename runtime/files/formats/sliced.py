"""Objects of Python that have a shape, a type and slices: NumPy's and Dask's arrays, and what is like them."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from brickrt.graph.errors import InputError
from brickrt.runtime.files.boxes import Extents, added, check_box, nonempty, number_type, pieces, slices, usual_axis
from brickrt.runtime.files.formats.chunked import ChunkedSource
from brickrt.runtime.files.identity import array_identity, digest

_SAMPLES = 16


class SlicedArray(Protocol):
    """What can be read from: `array[slices]` must be something that `numpy.asarray` takes."""

    shape: Any
    dtype: Any

    def __getitem__(self, key: Any, /) -> Any:
        """A part of it."""
        ...


class MemorySource:
    """A `BoxSource` of a NumPy array; boxes are copied from it."""

    buffer_bytes = 0

    def __init__(self, array: np.ndarray) -> None:
        self.name = f"array {list(array.shape)} {array.dtype}"
        self._array = array
        self.shape, self.dtype = nonempty(self.name, array.shape), number_type(self.name, array.dtype)
        self.chunks: Extents | None = None
        self.axis = usual_axis(self.shape)

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Copies the box that begins at `lo`."""
        check_box(self.name, self.shape, self.dtype, lo, out)
        out[...] = self._array[slices(lo, out.shape)]

    def identity(self) -> str:
        """Digest of shape, type and all elements."""
        return array_identity(self._array)

    def close(self) -> None:
        """Does nothing: the array is the caller's."""


class SlicedSource:
    """A `BoxSource` of anything with slices and without regular chunks, asked for 1 MiB at a time."""

    buffer_bytes = 1 << 20
    """What is asked for at a time; what the object itself holds comes on top."""

    def __init__(self, array: SlicedArray) -> None:
        self.name = f"{type(array).__name__} {list(array.shape)} {array.dtype}"
        self._array = array
        self.shape, self.dtype = nonempty(self.name, tuple(array.shape)), number_type(self.name, array.dtype)
        self.chunks: Extents | None = None
        self.axis = usual_axis(self.shape)

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Fills `out` with the box that begins at `lo`."""
        check_box(self.name, self.shape, self.dtype, lo, out)
        for offset, extents in pieces(out.shape, self.dtype.itemsize, self.buffer_bytes):
            out[slices(offset, extents)] = asked(self._array, self.name, added(lo, offset), extents)

    def identity(self) -> str:
        """Digest of shape, type and 16 samples."""
        return sampled_identity(self._array, self.name, self.shape)

    def close(self) -> None:
        """Does nothing: the object is the caller's."""


class SlicedChunks(ChunkedSource):
    """A `BoxSource` of anything with slices and regular chunks, such as Dask's arrays, asked for chunk by chunk."""

    def __init__(self, array: SlicedArray, chunks: Extents) -> None:
        name = f"{type(array).__name__} {list(array.shape)} {array.dtype}"
        self._array = array
        shape = nonempty(name, tuple(array.shape))
        super().__init__(name, shape, number_type(name, array.dtype), chunks)

    def load(self, lo: Extents, extents: Extents) -> np.ndarray:
        """The box, computed or read by the object."""
        return asked(self._array, self.name, lo, extents)

    def identity(self) -> str:
        """Digest of shape, type and 16 samples; Dask's own name of the array, where it has one, in their place."""
        name = getattr(self._array, "name", None)
        if hasattr(self._array, "__dask_graph__") and isinstance(name, str):
            return digest([self.shape, self.dtype, name])
        return sampled_identity(self._array, self.name, self.shape)


def asked(array: SlicedArray, name: str, lo: Extents, extents: Extents) -> np.ndarray:
    """The box as NumPy's array. What is no box of that shape is refused."""
    got = np.asarray(array[slices(lo, extents)])
    if got.shape != extents:
        raise InputError(f"{name}: gives {list(got.shape)} for a box {list(extents)}: its slices must be like NumPy's")
    return got


def sampled_identity(array: SlicedArray, name: str, shape: Extents) -> str:
    """Covers shape, type and 16 samples of up to 1024 elements of the last axis. Other changes go unseen."""
    parts: list[object] = [shape, array.dtype]
    rows = math.prod(shape[:-1])
    extents = (1,) * (len(shape) - 1) + (min(shape[-1], 1024),)
    for k in range(_SAMPLES):
        row = np.unravel_index(k * (rows - 1) // (_SAMPLES - 1), shape[:-1]) if len(shape) > 1 else ()
        column = k * (shape[-1] - extents[-1]) // (_SAMPLES - 1)
        parts.append(asked(array, name, (*map(int, row), column), extents).tobytes())
    return digest(parts)


def sliced_source(array: SlicedArray) -> MemorySource | SlicedSource | SlicedChunks:
    """The source that fits the object."""
    if isinstance(array, np.ndarray):
        return MemorySource(array)
    chunks = regular_chunks(getattr(array, "chunks", None), len(array.shape))
    return SlicedChunks(array, chunks) if chunks else SlicedSource(array)


def regular_chunks(chunks: object, rank: int) -> Extents | None:
    """One extent for each axis from Dask's or Zarr's form of chunks; None where they are not all of one size."""
    if not isinstance(chunks, tuple) or len(chunks) != rank:
        return None
    found = []
    for one in chunks:
        sizes = one if isinstance(one, tuple) else (one,)
        if not all(isinstance(size, int) for size in sizes) or any(size != sizes[0] for size in sizes[:-1]):
            return None
        if not sizes or sizes[-1] > sizes[0] or sizes[0] < 1:
            return None
        found.append(sizes[0])
    return tuple(found)
