"""NIfTI volumes: the header by nibabel, the voxels by descriptor. They are stored with the first axis innermost."""

from __future__ import annotations

import gzip
import os
import tempfile
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError, InputError
from brickrt.runtime.files.boxes import PIECE_BYTES, Extents, check_box, nonempty, number_type
from brickrt.runtime.files.converted import read_converted
from brickrt.runtime.files.descriptor import open_file, read_at, refused, write_at
from brickrt.runtime.files.extras import needed
from brickrt.runtime.files.formats.box_files import FileToRead, FileToWrite
from brickrt.runtime.files.formats.flat import FlatLayout, FlatSink, FlatSource
from brickrt.runtime.files.formats.relaid import RelaidSink, RelaidSource, column_major_sink
from brickrt.runtime.files.identity import file_identity

_HEADERS = {348: "Nifti1Header", 540: "Nifti2Header"}
_MOST_IN_FIRST_VERSION = 32767
_DESCRIPTION = 79  # bytes of the header's remark


class NiftiSource(FlatSource):
    """A `BoxSource` of a volume [x, y, z, …], unpacked. Where the header has a slope, values are scaled to float32."""

    def __init__(self, path: Path, header: Any, fd: int, packed: int | None) -> None:
        layout = _layout(path, header)
        super().__init__(fd, layout, str(path))
        self.header = header
        self._packed = packed
        self._stored = self.dtype
        self._slope, self._inter = _scaling(header)
        if (self._slope, self._inter) != (1.0, 0.0):
            self.dtype = np.dtype(np.float32)
            self.buffer_bytes = 4 * PIECE_BYTES

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Fills `out` with the box that begins at `lo`."""
        check_box(self.name, self.shape, self.dtype, lo, out)
        if (self._slope, self._inter) == (1.0, 0.0):
            self._boxes.read(lo, out)
        else:
            read_converted(self._boxes.read, self._stored, self._scaled, lo, out)

    def _scaled(self, stored: np.ndarray) -> np.ndarray:
        return stored * self._slope + self._inter

    def identity(self) -> str:
        """Digest of the file's size, time of last change and samples, packed as it is."""
        return file_identity(self._fd if self._packed is None else self._packed, self.name)

    def close(self) -> None:
        """Closes the file; the scratch file, if there is one, is gone with that."""
        super().close()
        if self._packed is not None:
            os.close(self._packed)


def nifti_source(asked: FileToRead) -> NiftiSource:
    """A source of a `.nii` or `.nii.gz` file. A packed one is unpacked to a scratch file in `scratch`, by default the
    folder for temporary files, first; it takes the unpacked size there until the source is closed."""
    path = asked.path
    needed("nibabel", str(path))
    with ExitStack() as opened:
        fd, packed = open_file(path), None
        opened.callback(os.close, fd)
        if path.suffix.lower() == ".gz":
            packed, fd = fd, _unpacked(path, asked.scratch)
            opened.callback(os.close, fd)
        source = NiftiSource(path, _header(path, fd), fd, packed)
        opened.pop_all()  # the source closes them
        return source


def _header(path: Path, fd: int) -> Any:
    import nibabel

    size = bytearray(4)
    read_at(fd, memoryview(size), 0, path)
    kinds = {int.from_bytes(size, "little"), int.from_bytes(size, "big")} & set(_HEADERS)
    if not kinds:
        raise InputError(f"{path}: is damaged or no NIfTI file: write it again, as .nii or .nii.gz")
    block = bytearray(kinds.pop())
    read_at(fd, memoryview(block), 0, path)
    try:
        return getattr(nibabel, _HEADERS[len(block)])(bytes(block), check=True)
    except (ValueError, nibabel.spatialimages.HeaderDataError) as e:
        raise InputError(f"{path}: has a damaged header ({e}): write it again") from e


def _layout(path: Path, header: Any) -> FlatLayout:
    dtype = header.get_data_dtype()
    number_type(str(path), dtype)
    shape = nonempty(str(path), tuple(header.get_data_shape()))
    return FlatLayout(shape, dtype, int(header.get_data_offset()), "F")


def _scaling(header: Any) -> tuple[float, float]:
    slope, inter = header.get_slope_inter()
    return (1.0 if slope is None else float(slope)), (0.0 if inter is None else float(inter))


def _unpacked(path: Path, scratch: Path | None) -> int:
    """A descriptor of the unpacked file, which has no name and goes when it is closed."""
    with refused(f"scratch file of {path}"):
        handle, name = tempfile.mkstemp(dir=scratch, prefix="brickrt-unpacked-")
        os.unlink(name)
    try:
        _unpack(path, handle)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _unpack(path: Path, handle: int) -> None:
    where, offset = f"scratch file of {path} in {tempfile.gettempdir()}", 0
    try:
        with gzip.open(path, "rb") as file:
            while data := file.read(PIECE_BYTES):
                write_at(handle, memoryview(data), offset, where)
                offset += len(data)
    except (gzip.BadGzipFile, EOFError, zlib.error) as e:
        raise InputError(f"{path}: is damaged ({e}): copy or write it again") from e


def nifti_sink(new: FileToWrite) -> FlatSink | RelaidSink:
    """A sink for a `.nii` file with the affine and the units of `like`, if that is a NIfTI source."""
    path, shape, dtype = new.path, new.shape, new.dtype
    nibabel = needed("nibabel", str(path))
    kind = "Nifti1Header" if max(shape) <= _MOST_IN_FIRST_VERSION else "Nifti2Header"
    made = getattr(nibabel, kind)
    like = new.like.original if isinstance(new.like, RelaidSource) else new.like
    header = made.from_header(like.header, check=False) if isinstance(like, NiftiSource) else made()
    try:
        header.set_data_dtype(dtype)
        header.set_data_shape(shape)
    except nibabel.spatialimages.HeaderDataError as e:
        raise BrickError(f"{path}: NIfTI cannot hold {list(shape)} of {dtype} ({e}): use another format") from e
    header.set_slope_inter(1, 0)
    if new.remark:
        header["descrip"] = new.remark.encode()[:_DESCRIPTION]
    offset = 352 if kind == "Nifti1Header" else 544
    header["vox_offset"] = offset
    for mark in {"sizeof_hdr", "magic", "eol_check"} & set(header.keys()):  # the input may be of the other version
        header[mark] = made()[mark]
    block = header.binaryblock
    layout = FlatLayout(shape, dtype, offset, "F")
    return column_major_sink(path, block + bytes(offset - len(block)), layout, new.axis, new.resume)
