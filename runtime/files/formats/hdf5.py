"""Datasets in HDF5 files. Those stored in one piece are read and written by descriptor, those in chunks by h5py."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError, InputError
from brickrt.runtime.files.boxes import Extents, nonempty, number_type
from brickrt.runtime.files.descriptor import open_file, read_at, refused
from brickrt.runtime.files.extras import needed
from brickrt.runtime.files.formats.box_files import FileToRead, FileToWrite
from brickrt.runtime.files.formats.chunked import ChunkedSource
from brickrt.runtime.files.formats.flat import FlatLayout, FlatSink, FlatSource, flat_source
from brickrt.runtime.files.identity import digest, file_identity


class Hdf5Chunks(ChunkedSource):
    """A `BoxSource` of a dataset in chunks. h5py's own cache is left empty: chunks are kept here.

    Without `path` the dataset is the caller's, and stays open.
    """

    def __init__(self, dataset: Any, name: str, path: Path | None) -> None:
        self._dataset, self._path = dataset, path
        shape = nonempty(name, dataset.shape)
        super().__init__(name, shape, number_type(name, dataset.dtype), dataset.chunks)

    def load(self, lo: Extents, extents: Extents) -> np.ndarray:
        """The box, read by h5py."""
        chunk = np.empty(extents, self.dtype)
        try:
            self._dataset.read_direct(chunk, tuple(np.s_[b : b + e] for b, e in zip(lo, extents)))
        except OSError as e:
            raise InputError(f"{self.name}: a chunk at {list(lo)} cannot be read ({e}): write it again") from e
        return chunk

    def identity(self) -> str:
        """Digest of the whole file's size, time of last change and samples, and of the dataset's name."""
        path = self._path or Path(self._dataset.file.filename)
        fd = open_file(path)
        try:
            return digest([self._dataset.name, file_identity(fd, self.name)])
        finally:
            os.close(fd)

    def close(self) -> None:
        """Closes the file, if it was opened here."""
        super().close()
        if self._path is not None:
            self._dataset.file.close()


def hdf5_source(asked: FileToRead) -> FlatSource | Hdf5Chunks:
    """A source of the dataset inside a file that was named, or else of the only one there is."""
    path = asked.path
    h5py = needed("h5py", str(path))
    os.close(open_file(path))
    try:
        file = h5py.File(path, "r", rdcc_nbytes=0)
    except OSError as e:
        raise InputError(f"{path}: is damaged or no HDF5 file ({e}): write it again") from e
    try:
        dataset = _dataset(h5py, file, path, asked.inside)
        flat = _flat(dataset, path)
        source = flat_source(path, flat) if flat else Hdf5Chunks(dataset, f"{path}::{dataset.name}", path)
    except BaseException:
        file.close()
        raise
    if flat:
        file.close()
    return source


def _dataset(h5py: Any, file: Any, path: Path, wanted: str) -> Any:
    found: list[str] = []
    file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) and item.shape else None)
    if not wanted and len(found) == 1:
        wanted = found[0]
    if wanted not in found:
        there = ", ".join(f"'{name}'" for name in found[:8]) or "no dataset"
        missing = f"no '{wanted}'" if wanted else "no single dataset"
        raise InputError(f"{path}: holds {missing}, but {there}: name one, as {path}::{(found or ['NAME'])[0]}")
    return file[wanted]


def _flat(dataset: Any, path: Path) -> FlatLayout | None:
    """Where the dataset lies, if that is in one piece of this file."""
    if dataset.chunks is not None or dataset.external or dataset.is_virtual:
        if dataset.chunks is None:
            raise InputError(f"{path}::{dataset.name}: lies in other files: copy it into one, with h5repack")
        return None
    offset = dataset.id.get_offset()
    if offset is None:
        raise InputError(f"{path}::{dataset.name}: was never written: write it again")
    number_type(str(path), dataset.dtype)
    return FlatLayout(nonempty(str(path), dataset.shape), dataset.dtype, int(offset))


def hdf5_sink(new: FileToWrite) -> FlatSink:
    """A sink for a new file with one dataset, in one piece and by descriptor: a killed run leaves nothing that h5py
    would refuse."""
    h5py, path, dtype = needed("h5py", str(new.path)), new.path, new.dtype
    try:
        h5py.h5t.py_create(dtype, logical=True)
    except TypeError as e:
        raise BrickError(f"{path}: HDF5 cannot hold {dtype}: use another type, or .npy") from e
    offset, header, trailer = _empty_file(path, new.inside or "data", new.shape, dtype, new.remark)
    return FlatSink(path, header, FlatLayout(new.shape, dtype, offset), new.axis, new.resume, trailer)


def _empty_file(path: Path, inside: str, shape: Extents, dtype: np.dtype, remark: str) -> tuple[int, bytes, bytes]:
    """Where the elements begin in a file with such a dataset, and what stands before and behind them."""
    with refused(path), tempfile.TemporaryDirectory(dir=path.parent, prefix=".brickrt-") as folder:
        made = Path(folder, "empty.h5")
        offset = _make_empty(made, inside, shape, dtype, remark)
        fd = open_file(made)
        try:
            end = offset + math.prod(shape) * dtype.itemsize
            header, trailer = bytearray(offset), bytearray(os.fstat(fd).st_size - end)
            read_at(fd, memoryview(header), 0, path)
            read_at(fd, memoryview(trailer), end, path)
        finally:
            os.close(fd)
    return offset, bytes(header), bytes(trailer)


def _make_empty(path: Path, inside: str, shape: Extents, dtype: np.dtype, remark: str) -> int:
    """Makes a file of full size, of which the elements take no room; returns where they begin."""
    import h5py

    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_layout(h5py.h5d.CONTIGUOUS)
    settings.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)  # its place is known, and no zeros are written
    settings.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    settings.set_obj_track_times(False)  # a run that resumes compares headers
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    with h5py.File(path, "w") as file:
        kind, space = h5py.h5t.py_create(dtype, logical=True), h5py.h5s.create_simple(shape)
        dataset = h5py.h5d.create(file.id, inside.encode(), kind, space, settings, links)
        if remark:
            file[inside].attrs["description"] = remark
        return int(dataset.get_offset())
