"""The formats of files: which names are of which, and what is done with each. All else asks here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from brickrt.runtime.files.arrangement import Arrangement, as_it_is, as_pages, as_volume
from brickrt.runtime.files.boxes import Extents
from brickrt.runtime.files.formats.box_files import BoxSink, BoxSource, FileToRead, FileToWrite
from brickrt.runtime.files.formats.hdf5 import hdf5_sink, hdf5_source
from brickrt.runtime.files.formats.nifti import nifti_sink, nifti_source
from brickrt.runtime.files.formats.npy import npy_sink, npy_source, raw_sink, raw_source
from brickrt.runtime.files.formats.pictures import picture_source
from brickrt.runtime.files.formats.raster import raster_source
from brickrt.runtime.files.formats.tiff_sink import TiffSink
from brickrt.runtime.files.formats.tiff_source import tiff_source
from brickrt.runtime.files.formats.zarr_arrays import ZarrSink, zarr_source

Way = Literal["array", "archive", "picture", "packed", "boxes"]


@dataclass(frozen=True)
class FileFormat:
    """A format of files, and what is done with it; packages that only it needs are imported once a file is opened.

    `source` opens a file to read it box by box, `sink` makes one to write it so, None where that is impossible;
    `instead` is then what an error says. `way` is how the command line reads and writes all of a file: by source and
    sink ("boxes"), as .npy or .npz, as a picture, or packed once it is written. Files that are not `described` do not
    say their own type and shape. With `inside`, `path::name` is an array inside a file. `arrange` lays out a model's
    output; of `pixels`, whole numbers become 0 to 1."""

    name: str
    suffixes: tuple[str, ...]
    source: Callable[[FileToRead], BoxSource] | None = None
    sink: Callable[[FileToWrite], BoxSink] | None = None
    way: Way = "boxes"
    described: bool = True
    inside: bool = False
    arrange: Callable[[Extents], Arrangement] = as_it_is
    pixels: bool = False
    instead: str = ""


ZARR = FileFormat("Zarr", (".zarr",), zarr_source, ZarrSink)
PACKED = "packed files can only be written from end to end: write .nii, and pack it with gzip"
PICTURE = "pictures are written by runs in memory: give a name that ends in .tif, with --as uint8:255 for bytes"
FORMATS = (
    FileFormat("NumPy array", (".npy",), npy_source, npy_sink, "array"),
    FileFormat("NumPy archive", (".npz",), way="archive"),
    FileFormat("PNG", (".png",), picture_source, way="picture", pixels=True, instead=PICTURE),
    FileFormat("JPEG", (".jpg", ".jpeg"), picture_source, way="picture", pixels=True, instead=PICTURE),
    FileFormat("WebP", (".webp",), picture_source, way="picture", pixels=True, instead=PICTURE),
    FileFormat("BMP", (".bmp",), picture_source, way="picture", pixels=True, instead=PICTURE),
    FileFormat("raw", (".raw", ".bin"), raw_source, raw_sink, described=False),
    ZARR,
    FileFormat("TIFF", (".tif", ".tiff", ".btf", ".tf8"), tiff_source, TiffSink, arrange=as_pages, pixels=True),
    FileFormat("NIfTI", (".nii",), nifti_source, nifti_sink, arrange=as_volume),
    FileFormat("packed NIfTI", (".nii.gz",), nifti_source, way="packed", instead=PACKED),
    FileFormat("HDF5", (".h5", ".hdf5", ".hdf"), hdf5_source, hdf5_sink, inside=True),
    FileFormat("raster of GDAL", (".vrt", ".jp2", ".j2k", ".img"), raster_source),
)

READ_BY_BOX = tuple(one for one in FORMATS if one.source)
WRITTEN_BY_BOX = tuple(one for one in FORMATS if one.sink)
READ_WHOLE = tuple(one for one in FORMATS if one.described)
WRITTEN_WHOLE = tuple(one for one in FORMATS if one.sink or one.way != "boxes")
OF_NUMPY = tuple(one for one in FORMATS if one.way in ("array", "archive"))
OF_PIXELS = tuple(one for one in FORMATS if one.pixels)


def format_of(name: str | Path, among: Sequence[FileFormat] = FORMATS) -> FileFormat | None:
    """The format of a file by its name, which may go on with `::` and the name of an array inside, or lead into a Zarr
    store. None where it is not `among` these."""
    outer, within, _ = str(name).lower().partition("::")
    known = (ZARR,) if is_zarr(outer) else tuple(one for one in FORMATS if outer.endswith(one.suffixes))
    return next((one for one in known if one in among and (one.inside or not within)), None)


def way_of(name: str | Path) -> Way | None:
    """How the command line reads and writes all of a file with this name; None where it is of no format."""
    found = format_of(name)
    return found.way if found else None


def listed(formats: Sequence[FileFormat]) -> str:
    """The ends of names of these formats, for messages."""
    return ", ".join(suffix for one in formats for suffix in one.suffixes)


def stem_of(name: str | Path) -> str:
    """A file's name without its folder, the end that says its format, and what it names inside."""
    file = Path(str(name).partition("::")[0]).name
    ends = (end for one in FORMATS for end in one.suffixes if file.lower().endswith(end))
    return file[: len(file) - len(next(ends, Path(file).suffix))]


def is_zarr(text: str) -> bool:
    """Whether a path is a Zarr store or leads into one."""
    return any(part.lower().endswith(".zarr") for part in Path(text).parts)
