"""Sources of which only whole chunks can be had: those that the next rows still need are kept."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from brickrt.runtime.files.boxes import Extents, added, check_box, slices, usual_axis

GROUP_BYTES = 4 << 20
"""Small chunks are asked for together, up to so many bytes, where a format is slow at single ones."""


class ChunkReader:
    """Reads boxes of a chunked array through `load(lo, extents)`, which returns chunks that stand beside each other.

    Chunks that a box leaves before their end along `axis` are kept for the next box, together at most one row of
    chunks."""

    def __init__(
        self,
        shape: Extents,
        dtype: np.dtype,
        chunks: Extents,
        load: Callable[[Extents, Extents], np.ndarray],
        group: int,
    ) -> None:
        self.shape, self.dtype, self.chunks = shape, dtype, tuple(map(min, chunks, shape))
        self.axis = usual_axis(shape)
        self._load = load
        bytes_of_chunk = math.prod(self.chunks) * dtype.itemsize
        self._along = max((k for k in range(len(shape)) if self.chunks[k] < shape[k]), default=0)
        abreast = -(-shape[self._along] // self.chunks[self._along])
        self._group = min(abreast, max(1, group // bytes_of_chunk))
        self._kept: dict[Extents, np.ndarray] = {}
        self._kept_bytes = 0

    @property
    def row_bytes(self) -> int:
        """The bytes of one row of chunks, which may be kept."""
        rest = self.shape[: self.axis] + self.shape[self.axis + 1 :]
        return math.prod(rest) * self.chunks[self.axis] * self.dtype.itemsize

    @property
    def group_bytes(self) -> int:
        """The bytes of the chunks that are loaded together."""
        return math.prod(self.chunks) * self.dtype.itemsize * self._group

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Fills `out` with the box that begins at `lo`."""
        if not out.size:
            return
        hi = added(lo, out.shape)
        for first, count in self._groups(lo, hi):
            for at, chunk in self._chunks(first, count):
                begin = tuple(a * c for a, c in zip(at, self.chunks))
                low, high = tuple(map(max, lo, begin)), tuple(map(min, hi, added(begin, chunk.shape)))
                extents = tuple(b - a for a, b in zip(low, high))
                inside = slices(tuple(a - b for a, b in zip(low, begin)), extents)
                out[slices(tuple(a - b for a, b in zip(low, lo)), extents)] = chunk[inside]
                self._keep(at, chunk, high[self.axis] < begin[self.axis] + chunk.shape[self.axis])

    def _groups(self, lo: Extents, hi: Extents) -> Iterator[tuple[Extents, int]]:
        """Chunks that stand beside each other and cover the box: the first one's place in the grid, and how many."""
        ranges = [range(a // c, -(-b // c)) for a, b, c in zip(lo, hi, self.chunks)]
        along = ranges[self._along]
        starts = range(along.start, along.stop, self._group)
        for first in product(*ranges[: self._along], starts, *ranges[self._along + 1 :]):
            yield first, min(self._group, along.stop - first[self._along])

    def _chunks(self, first: Extents, count: int) -> list[tuple[Extents, np.ndarray]]:
        places = [self._beside(first, k) for k in range(count)]
        if all(at in self._kept for at in places):
            return [(at, self._kept[at]) for at in places]
        begin = tuple(a * c for a, c in zip(first, self.chunks))
        wanted = tuple(c * (count if axis == self._along else 1) for axis, c in enumerate(self.chunks))
        loaded = self._load(begin, tuple(min(w, s - b) for w, s, b in zip(wanted, self.shape, begin)))
        return list(zip(places, self._split(loaded, count)))

    def _beside(self, first: Extents, k: int) -> Extents:
        return (*first[: self._along], first[self._along] + k, *first[self._along + 1 :])

    def _split(self, loaded: np.ndarray, count: int) -> list[np.ndarray]:
        step = self.chunks[self._along]
        index = (slice(None),) * self._along
        return [loaded[(*index, slice(k * step, (k + 1) * step))] for k in range(count)]

    def _keep(self, at: Extents, chunk: np.ndarray, needed: bool) -> None:
        if not needed:
            self._drop(at)
            return
        if at not in self._kept:
            self._kept[at] = chunk if chunk.base is None else chunk.copy()
            self._kept_bytes += chunk.nbytes
        while self._kept_bytes > self.row_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, at: Extents) -> None:
        if at in self._kept:
            self._kept_bytes -= self._kept.pop(at).nbytes

    def forget(self) -> None:
        """Gives the kept chunks back."""
        self._kept.clear()
        self._kept_bytes = 0


class ChunkedSource(ABC):
    """A `BoxSource` that reads through a `ChunkReader`; formats say how chunks are loaded, identified and closed."""

    def __init__(self, name: str, shape: Extents, dtype: np.dtype, chunks: Extents, group: int = 0) -> None:
        self._reader = ChunkReader(shape, dtype, chunks, self.load, group)
        self.name, self.shape, self.dtype = name, shape, dtype
        self.chunks: Extents | None = self._reader.chunks

    @property
    def axis(self) -> int:
        """The axis along which boxes follow each other: chunks that are read in part are kept for one row along it."""
        return self._reader.axis

    @axis.setter
    def axis(self, axis: int) -> None:
        """Says along which axis boxes will follow each other."""
        self._reader.axis = axis

    @property
    def buffer_bytes(self) -> int:
        """One row of chunks that are kept, and chunks as they are loaded: encoded, decoded and copied."""
        return self._reader.row_bytes + 3 * self._reader.group_bytes

    @abstractmethod
    def load(self, lo: Extents, extents: Extents) -> np.ndarray:
        """The box, which consists of whole chunks."""

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Fills `out` with the box that begins at `lo`."""
        check_box(self.name, self.shape, self.dtype, lo, out)
        self._reader.read(lo, out)

    @abstractmethod
    def identity(self) -> str:
        """Digest of the content."""

    def close(self) -> None:
        """Gives what is kept back."""
        self._reader.forget()
