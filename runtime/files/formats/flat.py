"""Arrays that lie in a file element after element, from some offset on."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import as_strided

from brickrt.graph.errors import BrickError, InputError
from brickrt.runtime.files.boxes import PIECE_BYTES, Extents, added, as_bytes, check_box, cut, slices, steps, usual_axis
from brickrt.runtime.files.descriptor import Unbuffered, Unfinished, open_file, read_at, sync_file, write_at
from brickrt.runtime.files.identity import file_identity

_RUN_APART = 1 << 14  # bytes from run to run: what lies between is read as well, as that is quicker than another call


@dataclass(frozen=True)
class FlatLayout:
    """How an array lies in a file: `dtype` with the file's byte order, row-major ("C") or column-major ("F")."""

    shape: Extents
    dtype: np.dtype
    offset: int
    order: Literal["C", "F"] = "C"

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def run(self) -> Extents:
        """The elements that lie one after the other, as extents."""
        ones = (1,) * (len(self.shape) - 1)
        return (*ones, self.shape[-1]) if self.order == "C" else (self.shape[0], *ones)


class FlatBoxes:
    """Reads and writes boxes of one flat array with few calls: elements that lie together go together, and short runs
    are read with what lies between them. Keeps one buffer of 1 MiB, its own where none is given. `unbuffered` transfers
    what it can."""

    def __init__(
        self,
        fd: int,
        layout: FlatLayout,
        name: str,
        buffer: bytearray | None = None,
        unbuffered: Unbuffered | None = None,
    ) -> None:
        self._fd, self._layout, self._name, self._unbuffered = fd, layout, name, unbuffered
        shape = layout.shape if layout.order == "C" else layout.shape[::-1]
        self._strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        self._buffer = buffer

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Fills `out` with the box that begins at `lo`."""
        for at, part, dense in self._parts(lo, out, gaps=True):
            if dense and self._direct(part):
                if self._unbuffered is None or not self._unbuffered.read(as_bytes(part), at):
                    read_at(self._fd, as_bytes(part), at, self._name)
                continue
            buffer = self._room(self._span(part.shape))
            read_at(self._fd, buffer, at, self._name)
            flat = np.frombuffer(buffer, self._layout.dtype)
            part[...] = as_strided(flat, part.shape, tuple(s * self._layout.dtype.itemsize for s in self._strides))

    def write(self, lo: Extents, array: np.ndarray) -> None:
        """Writes the box that begins at `lo`."""
        for at, part, _ in self._parts(lo, array, gaps=False):
            if not self._direct(part):
                buffer = self._room(part.size)
                np.frombuffer(buffer, self._layout.dtype).reshape(part.shape)[...] = part
                write_at(self._fd, buffer, at, self._name)
            elif self._unbuffered is None or not self._unbuffered.write(as_bytes(part), at):
                write_at(self._fd, as_bytes(part), at, self._name)

    def _parts(self, lo: Extents, array: np.ndarray, gaps: bool) -> Iterator[tuple[int, np.ndarray, bool]]:
        """What is transferred in one go: offset in the file, part of the array, whether it has no gaps in the file."""
        layout = self._layout
        if layout.order == "F":
            lo, array = lo[::-1], array.T
        if not array.size:
            return
        piece = steps(array.shape, lambda extents: self._in_one_go(array, extents, gaps))
        for offset, extents in cut(array.shape, piece):
            first = sum(a * s for a, s in zip(added(lo, offset), self._strides))
            dense = self._span(extents) == math.prod(extents)
            yield layout.offset + first * layout.dtype.itemsize, array[slices(offset, extents)], dense

    def _in_one_go(self, array: np.ndarray, extents: Extents, gaps: bool) -> bool:
        """Whether so many elements may be transferred by one call."""
        span, useful, item = self._span(extents), math.prod(extents), self._layout.dtype.itemsize
        small = span * item <= PIECE_BYTES
        if span == useful:
            return small or self._direct(array[slices((0,) * array.ndim, extents)])
        return gaps and small and span * item * self._run(extents) <= _RUN_APART * useful

    def _run(self, extents: Extents) -> int:
        """How many elements of a box lie together."""
        run = 1
        for extent, stride in zip(reversed(extents), reversed(self._strides)):
            if extent > 1 and stride != run:
                break
            run *= extent
        return run

    def _span(self, extents: Extents) -> int:
        """Elements in the file from the first to the last one of a box."""
        return 1 + sum((extent - 1) * stride for extent, stride in zip(extents, self._strides))

    def _direct(self, part: np.ndarray) -> bool:
        return part.flags.c_contiguous and part.dtype == self._layout.dtype

    def _room(self, elements: int) -> memoryview:
        if self._buffer is None:
            self._buffer = bytearray(PIECE_BYTES)
        return memoryview(self._buffer)[: elements * self._layout.dtype.itemsize]


class FlatSource:
    """A `BoxSource` of a flat array in a file; takes the descriptor, and closes it in the end."""

    buffer_bytes = PIECE_BYTES

    def __init__(self, fd: int, layout: FlatLayout, name: str) -> None:
        self._fd = fd
        self._boxes = FlatBoxes(fd, layout, name)
        self.shape, self.dtype, self.name = layout.shape, layout.dtype.newbyteorder("="), name
        self.chunks: Extents | None = layout.run
        self.column_major = layout.order == "F" and len(layout.shape) > 1
        self.axis = usual_axis(layout.shape)
        held = os.fstat(fd).st_size
        if held < layout.offset + layout.nbytes:
            raise InputError(
                f"{name}: has {held} bytes, {list(layout.shape)} of {self.dtype} take {layout.offset + layout.nbytes}:"
                " write it again, or give the right shape"
            )

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Fills `out` with the box that begins at `lo`."""
        check_box(self.name, self.shape, self.dtype, lo, out)
        self._boxes.read(lo, out)

    def identity(self) -> str:
        """Digest of the file's size, time of last change and samples: see `file_identity`."""
        return file_identity(self._fd, self.name)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._fd)


class SizedSink:
    """A sink's file that has its whole size from the beginning: a header, what is written in place, and a trailer."""

    row_unit = 1

    def __init__(self, path: Path, resume: bool, header: bytes, size: int, trailer: bytes = b"") -> None:
        """`size` are all bytes. Raises BrickError where a run that is gone on with began another file."""
        self.name = str(path)
        self._file = Unfinished(path, resume)
        self.resumed = self._file.resumed
        try:
            self._begin(header, size, trailer)
        except BaseException:
            self._file.abandon(keep=self.resumed)
            raise

    def _begin(self, header: bytes, size: int, trailer: bytes) -> None:
        if self.resumed:
            check_begun(self._file, header, size, self.name)
            return
        self._file.grow(size)
        write_at(self._file.fd, memoryview(trailer), size - len(trailer), self.name)
        write_at(self._file.fd, memoryview(header), 0, self.name)

    def sync(self) -> None:
        """Returns when everything written so far is on the disk."""
        sync_file(self._file.fd, self.name)

    def close(self) -> None:
        """Makes the file durable and gives it its name."""
        self._file.finish()

    def abandon(self, keep: bool = False) -> None:
        """Closes the file and removes it; with `keep` it stays under its temporary name, for a run that resumes."""
        self._file.abandon(keep)


class FlatSink(SizedSink):
    """A `BoxSink` of a header, a flat array, and a trailer. Boxes may have any shape and order; nothing of them is
    kept in memory."""

    buffer_bytes = PIECE_BYTES

    def __init__(
        self, path: Path, header: bytes, layout: FlatLayout, axis: int, resume: bool, trailer: bytes = b""
    ) -> None:
        self.shape, self.dtype, self.axis = layout.shape, layout.dtype, axis
        self.chunks: Extents | None = layout.run
        super().__init__(path, resume, header, layout.offset + layout.nbytes + len(trailer), trailer)
        self._boxes = FlatBoxes(self._file.fd, layout, self.name)

    def write(self, lo: Extents, array: np.ndarray) -> None:
        """Writes the box that begins at `lo`."""
        check_box(self.name, self.shape, self.dtype, lo, array)
        self._boxes.write(lo, array)

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Fills `out` with what was written; elements that were not are 0."""
        check_box(self.name, self.shape, self.dtype, lo, out)
        self._boxes.read(lo, out)


def check_begun(file: Unfinished, header: bytes, size: int, name: str) -> None:
    """Refuses to go on with a file that was begun with another shape or type."""
    found = bytearray(min(len(header), file.size()))
    read_at(file.fd, memoryview(found), 0, name)
    if found != header or file.size() != size:
        raise BrickError(f"{name}: was begun with another shape or type: leave out --resume to start again")


def flat_source(path: Path, layout: FlatLayout) -> FlatSource:
    """A source of the flat array in `path`."""
    fd = open_file(path)
    try:
        return FlatSource(fd, layout, str(path))
    except BaseException:
        os.close(fd)
        raise
