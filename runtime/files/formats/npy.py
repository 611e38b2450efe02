"""`.npy` files, and raw ones, which have no header."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from brickrt.graph.errors import InputError
from brickrt.runtime.files.boxes import Extents, nonempty, number_type
from brickrt.runtime.files.formats.box_files import FileToRead, FileToWrite
from brickrt.runtime.files.formats.flat import FlatLayout, FlatSink, FlatSource, flat_source


def npy_source(asked: FileToRead) -> FlatSource:
    """A source of a `.npy` file, in either order. Types that NumPy does not know, such as bfloat16, are stored as
    bytes: `dtype` says what they are."""
    path, dtype = asked.path, asked.dtype
    with path.open("rb") as file:
        shape, column_major, stored = _header(path, file)
        offset = file.tell()
    nameless = stored.type is np.void and stored.names is None
    if nameless and dtype is not None and stored.itemsize == dtype.itemsize:
        stored = dtype
    elif nameless:
        raise InputError(f"{path}: holds {stored.itemsize} bytes an element without a type: give the type")
    number_type(str(path), stored)
    order = "F" if column_major else "C"
    return flat_source(path, FlatLayout(nonempty(str(path), shape), stored, offset, order))  # type: ignore[arg-type]


def _header(path: Path, file: IO[bytes]) -> tuple[Extents, bool, np.dtype]:
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        return read(file)
    except (ValueError, EOFError, KeyError, SyntaxError) as e:
        raise InputError(f"{path}: is damaged or no .npy file ({e}): write it with numpy.save") from e


def npy_sink(new: FileToWrite) -> FlatSink:
    """A sink for a `.npy` file: the header is written first."""
    file = io.BytesIO()
    fields = {"descr": npy.dtype_to_descr(new.dtype), "fortran_order": False, "shape": new.shape}
    npy.write_array_header_1_0(file, fields)
    header = file.getvalue()
    return FlatSink(new.path, header, FlatLayout(new.shape, new.dtype, len(header)), new.axis, new.resume)


def raw_source(asked: FileToRead) -> FlatSource:
    """A source of a file that holds nothing but elements, in row-major order."""
    path = asked.path
    if asked.shape is None or asked.dtype is None:
        raise InputError(f"{path}: raw files do not say what they hold: give shape and dtype")
    return flat_source(path, FlatLayout(nonempty(str(path), asked.shape), asked.dtype, 0))


def raw_sink(new: FileToWrite) -> FlatSink:
    """A sink for a file that holds nothing but elements, in row-major order."""
    return FlatSink(new.path, b"", FlatLayout(new.shape, new.dtype, 0), new.axis, new.resume)
