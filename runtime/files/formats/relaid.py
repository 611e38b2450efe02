"""Column-major arrays by rows: what is far apart in such a file goes through a row-major one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from brickrt.runtime.files.boxes import Extents, check_box, cut
from brickrt.runtime.files.descriptor import check_room, part_of, refused
from brickrt.runtime.files.formats.flat import FlatBoxes, FlatLayout, FlatSink, FlatSource

_COPIED_AT_A_TIME = 16 << 20


def copy_boxes(
    read: Callable[[Extents, np.ndarray], None],
    write: Callable[[Extents, np.ndarray], None],
    shape: Extents,
    dtype: np.dtype,
) -> None:
    """Copies an array box by box of at most 16 MiB, that go from end to end along the first and the last axis if they
    can: both orders then have long runs."""
    piece = list(shape)
    for axis in (*range(1, len(shape) - 1), 0, len(shape) - 1):
        while piece[axis] > 1 and int(np.prod(piece)) * dtype.itemsize > _COPIED_AT_A_TIME:
            piece[axis] = (piece[axis] + 1) // 2
    for lo, extents in cut(shape, tuple(piece)):
        box = np.empty(extents, dtype)
        read(lo, box)
        write(lo, box)


class RelaidSource(FlatSource):
    """A `BoxSource` of a row-major copy of `original` in a scratch file without a name; it has its identity."""

    def __init__(self, source: FlatSource, scratch: Path | None) -> None:
        self.original = source
        with refused(f"scratch file of {source.name}"):
            fd, name = tempfile.mkstemp(dir=scratch, prefix="brickrt-rows-")
            os.unlink(name)
        try:
            layout = FlatLayout(source.shape, source.dtype, 0)
            with refused(f"scratch file of {source.name}"):
                os.ftruncate(fd, layout.nbytes)
            copy_boxes(source.read, FlatBoxes(fd, layout, source.name).write, source.shape, source.dtype)
            super().__init__(fd, layout, source.name)
        except BaseException:
            os.close(fd)
            raise

    def identity(self) -> str:
        """Digest of the original: see its source."""
        return self.original.identity()

    def close(self) -> None:
        """Closes the file and the original; the scratch file is gone with that."""
        super().close()
        self.original.close()


class RelaidSink:
    """A `BoxSink` that writes rows to a row-major file and copies it to the column-major one when it is closed. Until
    then it takes room for one, in the end for both."""

    def __init__(self, path: Path, header: bytes, layout: FlatLayout, axis: int, resume: bool) -> None:
        self.shape, self.dtype, self.name, self.axis = layout.shape, layout.dtype, str(path), axis
        self._path, self._header, self._layout = path, header, layout
        self.row_unit, self.chunks = 1, (*(1,) * (len(layout.shape) - 1), layout.shape[-1])
        check_room(Path(os.path.realpath(path)), 0 if resume else 2 * layout.nbytes)
        rows = FlatLayout(layout.shape, layout.dtype, len(header))
        self._rows = FlatSink(rows_beside(path), header, rows, axis, resume)
        self.resumed = self._rows.resumed
        self.buffer_bytes = self._rows.buffer_bytes + _COPIED_AT_A_TIME

    def write(self, lo: Extents, array: np.ndarray) -> None:
        """Writes the box that begins at `lo`."""
        check_box(self.name, self.shape, self.dtype, lo, array)
        self._rows.write(lo, array)

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Fills `out` with what was written; elements that were not are 0."""
        check_box(self.name, self.shape, self.dtype, lo, out)
        self._rows.read(lo, out)

    def sync(self) -> None:
        """Returns when everything written so far is on the disk."""
        self._rows.sync()

    def close(self) -> None:
        """Copies the rows to the file, makes it durable and gives it its name."""
        whole = FlatSink(self._path, self._header, self._layout, self.axis, False)
        try:
            copy_boxes(self._rows.read, whole.write, self.shape, self.dtype)
        except BaseException:
            whole.abandon()
            raise
        whole.close()
        self._rows.abandon()

    def abandon(self, keep: bool = False) -> None:
        """Removes the rows; with `keep` they stay under their temporary name, for a run that resumes."""
        self._rows.abandon(keep)


def rows_beside(path: Path) -> Path:
    """The name for the rows of an output; they only ever have the temporary name that belongs to it."""
    return path.with_name(f"{path.name}.rows")


def column_major_sink(path: Path, header: bytes, layout: FlatLayout, axis: int, resume: bool) -> FlatSink | RelaidSink:
    """A sink for a column-major file: by way of rows, unless they go along its last axis, or an earlier run has
    finished the file already."""
    finished = resume and path.exists() and not part_of(rows_beside(Path(os.path.realpath(path)))).exists()
    if axis == len(layout.shape) - 1 or finished:
        return FlatSink(path, header, layout, axis, resume)
    return RelaidSink(path, header, layout, axis, resume)
