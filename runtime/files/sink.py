"""What a run writes its outputs to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.runtime.files.boxes import Extents, nonempty, number_type
from brickrt.runtime.files.formats import hdf5, tiff_source
from brickrt.runtime.files.formats.hdf5 import hdf5_sink
from brickrt.runtime.files.formats.nifti import nifti_sink
from brickrt.runtime.files.formats.npy import npy_sink, raw_sink
from brickrt.runtime.files.formats.raster import RasterSource
from brickrt.runtime.files.formats.tiff_sink import TiffSink
from brickrt.runtime.files.formats.tiff_source import TiffPlain, TiffSegments
from brickrt.runtime.files.formats.zarr_arrays import ZarrSink
from brickrt.runtime.files.grey import GreyAsColours
from brickrt.runtime.files.source import RAW, BoxSource, is_zarr

WRITABLE = (".npy", *RAW, ".zarr", *tiff_source.SUFFIXES, ".nii", *hdf5.SUFFIXES)


class BoxSink(Protocol):
    """An array that is written box by box, in any order, by one thread at a time. Until `close` the file has another
    name, which is the same in each run: `resume` goes on with it."""

    @property
    def shape(self) -> Extents:
        """Its extents, in the file's order of axes."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """The type that `write` takes."""
        ...

    @property
    def name(self) -> str:
        """The path."""
        ...

    @property
    def chunks(self) -> Extents | None:
        """How it lies in the file: boxes aligned to it are written fastest."""
        ...

    @property
    def axis(self) -> int:
        """The axis of rows, which `row_unit` counts."""
        ...

    @property
    def row_unit(self) -> int:
        """A write of a multiple of so many rows, that begins at a multiple, finishes what it writes: nothing is read
        back and written again."""
        ...

    @property
    def resumed(self) -> bool:
        """Whether it goes on with what an earlier run wrote."""
        ...

    @property
    def buffer_bytes(self) -> int:
        """The most memory that it holds beside what it is given."""
        ...

    def write(self, lo: Extents, array: np.ndarray) -> None:
        """Writes the box that begins at `lo`; `array` may have any strides and has the type `dtype`."""
        ...

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Fills `out` with what was written; elements that were not are 0, or what was there before."""
        ...

    def sync(self) -> None:
        """Returns when everything written so far is on the disk."""
        ...

    def close(self) -> None:
        """Makes the file durable and gives it its name, in place of what had it."""
        ...

    def abandon(self, keep: bool = False) -> None:
        """Closes the file and removes it; with `keep` it stays under its temporary name, for a run that resumes."""
        ...


def create_sink(
    path: str | Path,
    shape: Extents,
    dtype: Any,
    *,
    axis: int = 2,
    resume: bool = False,
    chunks: Extents | None = None,
    like: BoxSource | None = None,
    remark: str = "",
) -> BoxSink:
    """A sink for a file, by its suffix; rows are counted along `axis`.

    `path.h5::name` names the dataset. `chunks` is for Zarr, which alone leaves a choice. `like` is the input, from
    which NIfTI takes affine and units, and TIFF the place on Earth. `remark`, in ASCII, is put where the format has
    room for one: Zarr's and HDF5's attribute `description`, TIFF's description, NIfTI's `descrip`. With `resume`, what
    an earlier run wrote is gone on with. Raises BrickError for what cannot be written and where the disk has too little
    room."""
    name, kind = str(path), number_type(str(path), dtype)
    if not all(isinstance(extent, int) for extent in shape) or not 0 <= axis < len(shape):
        raise BrickError(f"{name}: {list(shape)} has no axis {axis} of rows: give another axis")
    extents = nonempty(name, shape)
    outer, _, inside = name.partition("::")
    target = Path(outer)
    makers: dict[tuple[str, ...], Callable[[], BoxSink]] = {
        (".npy",): lambda: npy_sink(target, extents, kind, axis, resume),
        RAW: lambda: raw_sink(target, extents, kind, axis, resume),
        (".nii", ".nii.gz"): lambda: nifti_sink(target, extents, kind, axis, resume, like, remark),
        tiff_source.SUFFIXES: lambda: TiffSink(target, extents, kind, axis, resume, _places(like), remark),
        hdf5.SUFFIXES: lambda: hdf5_sink(target, inside, extents, kind, axis, resume, remark),
    }
    if "://" in name:
        raise BrickError(f"{name}: stores elsewhere are for reading only: write to a disk here, and copy it")
    if is_zarr(name):
        return ZarrSink(Path(name), extents, kind, axis, resume, chunks, remark)
    for suffixes, make in makers.items():
        if target.name.lower().endswith(suffixes):
            return make()
    raise BrickError(f"{name}: is none of {', '.join(WRITABLE)}: give another name")


def _places(like: BoxSource | None) -> list[tiff_source.TagOfPlace]:
    like = like.grey if isinstance(like, GreyAsColours) else like
    if isinstance(like, RasterSource):
        return like.places
    return like.pages.places if isinstance(like, (TiffPlain, TiffSegments)) else []
