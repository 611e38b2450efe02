"""What a run reads its inputs from."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from brickrt.graph.errors import InputError
from brickrt.runtime.files.boxes import Extents
from brickrt.runtime.files.formats import hdf5, raster, tiff_source
from brickrt.runtime.files.formats.flat import FlatSource
from brickrt.runtime.files.formats.hdf5 import Hdf5Chunks, hdf5_source
from brickrt.runtime.files.formats.nifti import nifti_source
from brickrt.runtime.files.formats.npy import npy_source, raw_source
from brickrt.runtime.files.formats.relaid import RelaidSource
from brickrt.runtime.files.formats.sliced import SlicedArray, sliced_source
from brickrt.runtime.files.formats.zarr_arrays import zarr_object, zarr_source

RAW = (".raw", ".bin")
READABLE = (".npy", *RAW, ".zarr", *tiff_source.SUFFIXES, ".nii", ".nii.gz", *hdf5.SUFFIXES, *raster.SUFFIXES)


class BoxSource(Protocol):
    """An array that is read box by box, by one thread at a time."""

    @property
    def shape(self) -> Extents:
        """Its extents, in the file's order of axes."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """Its type, in this machine's byte order."""
        ...

    @property
    def name(self) -> str:
        """The path, or what an object is."""
        ...

    @property
    def chunks(self) -> Extents | None:
        """How it lies in the file: boxes aligned to it read fastest. None where that is not known."""
        ...

    @property
    def axis(self) -> int:
        """The axis along which boxes will follow each other, which may be set. Chunks that a box leaves before their
        end are kept for the next, at most one row of chunks along this axis."""
        ...

    @axis.setter
    def axis(self, axis: int, /) -> None:
        """Says along which axis boxes will follow each other."""
        ...

    @property
    def buffer_bytes(self) -> int:
        """The most memory that it holds beside what it is asked for."""
        ...

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Fills `out`, which may have any strides and has the type `dtype`, with the box that begins at `lo`."""
        ...

    def identity(self) -> str:
        """A digest that changes when the content does, and not when the file is moved. Each source says what it
        covers."""
        ...

    def close(self) -> None:
        """Closes what was opened here."""
        ...


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


def _of_path(text: str, dtype: np.dtype | None, shape: Extents | None, scratch: Path | None) -> BoxSource:
    if "://" in text or is_zarr(text):
        return zarr_source(text)
    outer, _, inside = text.partition("::")
    path = Path(outer)
    if not path.exists():
        raise InputError(f"{path}: no such file: check the path")
    openers: dict[tuple[str, ...], Callable[[], BoxSource]] = {
        (".npy",): lambda: npy_source(path, dtype),
        RAW: lambda: raw_source(path, shape, dtype),
        (".nii", ".nii.gz"): lambda: nifti_source(path, scratch),
        tiff_source.SUFFIXES: lambda: tiff_source.tiff_source(path),
        hdf5.SUFFIXES: lambda: hdf5_source(path, inside),
        raster.SUFFIXES: lambda: raster.raster_source(path),
    }
    for suffixes, opener in openers.items():
        if path.name.lower().endswith(suffixes):
            return opener()
    raise InputError(f"{path}: is none of {', '.join(READABLE)}: convert it")


def is_zarr(text: str) -> bool:
    """Whether a path is a Zarr store or leads into one."""
    return any(part.lower().endswith(".zarr") for part in Path(text).parts)
