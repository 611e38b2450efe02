"""What a run reads its inputs from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from brickrt.graph.errors import InputError
from brickrt.runtime.files.boxes import Extents
from brickrt.runtime.files.formats.box_files import BoxSource, FileToRead
from brickrt.runtime.files.formats.file_formats import READ_BY_BOX, ZARR, format_of, listed
from brickrt.runtime.files.formats.flat import FlatSource
from brickrt.runtime.files.formats.hdf5 import Hdf5Chunks
from brickrt.runtime.files.formats.relaid import RelaidSource
from brickrt.runtime.files.formats.sliced import SlicedArray, sliced_source
from brickrt.runtime.files.formats.zarr_arrays import zarr_object, zarr_source


def open_source(
    what: str | Path | SlicedArray,
    *,
    dtype: Any = None,
    shape: Extents | None = None,
    scratch: Path | None = None,
) -> BoxSource:
    """A source of a file, by its suffix, or of an object with `shape`, `dtype` and slices.

    `path.h5::name` and `path.zarr/name` name an array inside. Raw files need `dtype` and `shape`; for others they
    must be what the file holds. `.nii.gz` is unpacked to a file without a name in `scratch`, by default the folder
    for temporary files. Raises InputError for what cannot be read, and BrickError for a package that is missing."""
    wanted = None if dtype is None else np.dtype(dtype)
    source = _of_path(str(what), wanted, shape, scratch) if isinstance(what, (str, Path)) else _of_object(what)
    try:
        _check_wanted(source, wanted, shape)
    except BaseException:
        source.close()
        raise
    return source


def by_rows(source: BoxSource, *, scratch: Path | None = None) -> BoxSource:
    """The source, or where it is column-major and `source.axis` is not its last axis, a row-major copy of it in a
    scratch file: rows of such files are scattered over all of it, and a sweep would read it again for each band."""
    scattered = isinstance(source, FlatSource) and source.column_major and source.axis != len(source.shape) - 1
    if not isinstance(source, FlatSource) or not scattered:
        return source
    relaid = RelaidSource(source, scratch)
    relaid.axis = source.axis
    return relaid


def _check_wanted(source: BoxSource, dtype: np.dtype | None, shape: Extents | None) -> None:
    if dtype is not None and source.dtype != dtype.newbyteorder("="):
        raise InputError(f"{source.name}: holds {source.dtype}, not {dtype}: leave the type out, or convert the file")
    if shape is not None and source.shape != tuple(shape):
        raise InputError(f"{source.name}: has the shape {list(source.shape)}, not {list(shape)}: leave the shape out")


def _of_object(array: SlicedArray) -> BoxSource:
    if not all(hasattr(array, name) for name in ("shape", "dtype", "__getitem__")):
        raise InputError(f"{type(array).__name__}: has no shape, dtype and slices: give a path or an array")
    zarr, h5py = sys.modules.get("zarr"), sys.modules.get("h5py")
    if zarr is not None and isinstance(array, zarr.Array):
        return zarr_object(array)
    if h5py is not None and isinstance(array, h5py.Dataset) and array.chunks is not None:
        return Hdf5Chunks(array, f"{array.file.filename}::{array.name}", None)
    return sliced_source(array)


def _of_path(name: str, dtype: np.dtype | None, shape: Extents | None, scratch: Path | None) -> BoxSource:
    asked = FileToRead(name, dtype, shape, scratch)
    if "://" in name:
        return zarr_source(asked)
    found = format_of(asked.name, READ_BY_BOX)
    if found is not ZARR and not asked.path.exists():
        raise InputError(f"{asked.path}: no such file: check the path")
    if found is None or found.source is None:
        raise InputError(f"{asked.name}: is none of {listed(READ_BY_BOX)}: convert it")
    return found.source(asked)
