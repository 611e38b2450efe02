"""What a run writes its outputs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from brickrt.graph.errors import BrickError
from brickrt.runtime.files.boxes import Extents, nonempty, number_type
from brickrt.runtime.files.formats.box_files import BoxSink, BoxSource, FileToWrite
from brickrt.runtime.files.formats.file_formats import WRITTEN_BY_BOX, format_of, listed
from brickrt.runtime.files.grey import GreyAsColours


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
    if "://" in name:
        raise BrickError(f"{name}: stores elsewhere are for reading only: write to a disk here, and copy it")
    found = format_of(name)
    if found is None or found.sink is None:
        instead = found.instead if found else ""
        unknown = f"is none of {listed(WRITTEN_BY_BOX)}: give another name"
        raise BrickError(f"{name}: {instead or unknown}")
    like = like.grey if isinstance(like, GreyAsColours) else like
    return found.sink(FileToWrite(name, extents, kind, axis, resume, chunks, like, remark))
