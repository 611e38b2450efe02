"""Writing tiled TIFF and BigTIFF files: all tiles have their place from the start, so boxes may come in any order."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.runtime.files.boxes import Extents, added, as_bytes, check_box
from brickrt.runtime.files.descriptor import read_at, write_at
from brickrt.runtime.files.extras import needed
from brickrt.runtime.files.formats.box_files import BoxSource, FileToWrite
from brickrt.runtime.files.formats.flat import SizedSink
from brickrt.runtime.files.formats.raster import RasterSource
from brickrt.runtime.files.formats.tiff_source import TagOfPlace, TiffPlain, TiffSegments

_TILE = 256
_TILE_UNIT = 16  # extents are multiples of it
_MOST_SAMPLES = 4
_CLASSIC = 1 << 32
_FORMATS = {"u": 1, "i": 2, "f": 3}
_PACKED = {1: "B", 2: "s", 3: "H", 4: "I", 5: "II", 11: "f", 12: "d", 16: "Q"}

Tag = tuple[int, int, Any]
"""Code, type and values of a tag; a text is bytes."""


class TiffGrid:
    """An array as pages of tiles: `pages` extents in front, then height, width and samples."""

    def __init__(self, name: str, shape: Extents, dtype: np.dtype) -> None:
        if len(shape) < 2 or dtype.kind not in _FORMATS or dtype.name == "bfloat16":
            raise BrickError(f"{name}: TIFF cannot hold {list(shape)} of {dtype}: use another type, or .npy or .zarr")
        self.sampled = len(shape) > 2 and shape[-1] <= _MOST_SAMPLES
        inner = shape[-3:] if self.sampled else (*shape[-2:], 1)
        self.pages = shape[: len(shape) - (3 if self.sampled else 2)]
        self.height, self.width, self.samples = inner
        self.tile = tuple(min(_TILE, -(-extent // _TILE_UNIT) * _TILE_UNIT) for extent in inner[:2])
        self.across = -(-self.width // self.tile[1])
        self.per_page = -(-self.height // self.tile[0]) * self.across
        self.tile_bytes = math.prod(self.tile) * self.samples * dtype.itemsize

    @property
    def count(self) -> int:
        """How many pages there are."""
        return math.prod(self.pages)

    @property
    def nbytes(self) -> int:
        """The bytes of all tiles."""
        return self.count * self.per_page * self.tile_bytes


class TiffSink(SizedSink):
    """A `BoxSink` for tiles of 256×256 pixels, not compressed; nothing of a tile that is written in part is kept.

    Sizes beyond 4 GiB make it a BigTIFF. A last axis of up to 4 is the samples of a pixel; axes before rows are pages.
    """

    def __init__(self, new: FileToWrite) -> None:
        self.shape, self.dtype, self.axis = new.shape, new.dtype, new.axis
        self._grid = grid = TiffGrid(str(new.path), self.shape, self.dtype)
        self.chunks: Extents | None = (1,) * len(grid.pages) + (*grid.tile, grid.samples)[: 3 if grid.sampled else 2]
        self.buffer_bytes = 2 * grid.tile_bytes
        header = tiff_header(grid, self.dtype, _description(new, grid), _places(new.like))
        self._offset = len(header)
        super().__init__(new.path, new.resume, header, self._offset + grid.nbytes)

    def write(self, lo: Extents, array: np.ndarray) -> None:
        """Writes the box that begins at `lo`."""
        check_box(self.name, self.shape, self.dtype, lo, array)
        if self._grid.sampled and array.shape[-1] != self._grid.samples:
            raise BrickError(f"{self.name}: all samples of a pixel are written together: give all {self._grid.samples}")
        for part, at, columns in self._parts(lo, array):
            width = min(self._grid.tile[1], columns.stop)
            if (
                columns.start == 0 and width == part.shape[1]
            ):  # whole rows of the tile, but for what is beyond the image
                block = np.zeros((part.shape[0], self._grid.tile[1], self._grid.samples), self.dtype)
                block[:, :width] = part
                write_at(self._file.fd, as_bytes(block), at, self.name)
                continue
            for row, begin in zip(part, self._rows(at, columns.start, len(part))):
                write_at(self._file.fd, as_bytes(np.ascontiguousarray(row)), begin, self.name)

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Fills `out` with what was written; pixels that were not are 0."""
        check_box(self.name, self.shape, self.dtype, lo, out)
        first = lo[-1] if self._grid.sampled else 0
        for part, at, columns in self._parts(lo, out):
            block = np.empty((part.shape[0], self._grid.tile[1], self._grid.samples), self.dtype)
            read_at(self._file.fd, as_bytes(block), at, self.name)
            rows, width, samples = part.shape
            part[...] = block[:rows, columns.start : columns.start + width, first : first + samples]

    def _rows(self, at: int, column: int, count: int) -> Iterator[int]:
        """Where a column of so many rows of a tile lies, of which the first begins at `at`."""
        pixel = self._grid.samples * self.dtype.itemsize
        return (at + (row * self._grid.tile[1] + column) * pixel for row in range(count))

    def _parts(self, lo: Extents, array: np.ndarray) -> Iterator[tuple[np.ndarray, int, slice]]:
        """The box by tiles: its part [rows, columns, samples], where the first of these rows of the tile begins in the
        file, and the tile's columns from the first wanted to the last that is in the image."""
        grid, lead = self._grid, len(self._grid.pages)
        view = array if grid.sampled else array[..., None]
        low = lo[lead : lead + 2]
        high = added(low, view.shape[lead : lead + 2])
        for page in np.ndindex(*view.shape[:lead]):
            number = int(np.ravel_multi_index(added(lo[:lead], page), grid.pages)) if lead else 0
            for r, c in product(*(range(a // t, -(-b // t)) for a, b, t in zip(low, high, grid.tile))):
                top, left = r * grid.tile[0], c * grid.tile[1]
                first, last = max(low[0], top), min(high[0], top + grid.tile[0])
                begin, end = max(low[1], left), min(high[1], left + grid.tile[1])
                at = self._offset + (number * grid.per_page + r * grid.across + c) * grid.tile_bytes
                at += (first - top) * grid.tile[1] * grid.samples * self.dtype.itemsize
                part = view[page][first - low[0] : last - low[0], begin - low[1] : end - low[1]]
                yield part, at, slice(begin - left, grid.width - left)


def tiff_header(grid: TiffGrid, dtype: np.dtype, description: bytes, places: list[TagOfPlace]) -> bytes:
    """All of the file before its tiles: one directory for each page."""
    size = 0
    for big in (False, True):
        size = len(_directories(grid, dtype, description, places, 0, big))
        if big or size + grid.nbytes < _CLASSIC:
            return _directories(grid, dtype, description, places, size, big)
    raise AssertionError(size)


def _directories(
    grid: TiffGrid, dtype: np.dtype, description: bytes, places: list[TagOfPlace], tiles: int, big: bool
) -> bytes:
    made = bytearray(struct.pack("<2sHHHQ", b"II", 43, 8, 0, 16) if big else struct.pack("<2sHI", b"II", 42, 8))
    for page in range(grid.count):
        tags = _tags(grid, dtype, tiles + page * grid.per_page * grid.tile_bytes, big)
        if page == 0:
            tags += [(270, 2, description), *((code, kind, value) for code, kind, _, value in places)]
        made += _directory(sorted(tags, key=lambda tag: tag[0]), len(made), page + 1 == grid.count, big)
    return bytes(made) + bytes(-len(made) % _TILE_UNIT)


def _tags(grid: TiffGrid, dtype: np.dtype, first: int, big: bool) -> list[Tag]:
    """What says how one page's tiles lie, of which the first is at `first`."""
    long = 16 if big else 4
    colour = grid.samples in (3, 4) and dtype.kind == "u" and dtype.itemsize <= 2
    extra = [2] * (grid.samples - 3) if colour else [0] * (grid.samples - 1)
    offsets = [first + k * grid.tile_bytes for k in range(grid.per_page)]
    tags: list[Tag] = [
        (256, 4, [grid.width]),
        (257, 4, [grid.height]),
        (258, 3, [dtype.itemsize * 8] * grid.samples),
        (259, 3, [1]),
        (262, 3, [2 if colour else 1]),
        (277, 3, [grid.samples]),
        (284, 3, [1]),
        (322, 4, [grid.tile[1]]),
        (323, 4, [grid.tile[0]]),
        (324, long, offsets),
        (325, long, [grid.tile_bytes] * grid.per_page),
        (339, 3, [_FORMATS[dtype.kind]] * grid.samples),
    ]
    return [*tags, (338, 3, extra)] if extra else tags


def _directory(tags: list[Tag], at: int, last: bool, big: bool) -> bytes:
    """One directory that begins at `at`; values that do not fit into it stand behind it."""
    count, entry, pointer, room = ("<Q", "<HHQ", "<Q", 8) if big else ("<H", "<HHI", "<I", 4)
    behind = at + struct.calcsize(count) + len(tags) * (struct.calcsize(entry) + room) + room
    entries, values = bytearray(struct.pack(count, len(tags))), bytearray()
    for code, kind, value in tags:
        number, data = _packed(kind, value)
        entries += struct.pack(entry, code, kind, number)
        if len(data) <= room:
            entries += data.ljust(room, b"\0")
        else:
            entries += struct.pack(pointer, behind + len(values))
            values += data + bytes(-len(data) % 8)
    end = behind + len(values)
    pad = bytes(-end % 8)
    return bytes(entries) + struct.pack(pointer, 0 if last else end + len(pad)) + bytes(values) + pad


def _packed(kind: int, value: Any) -> tuple[int, bytes]:
    """How many values, and their bytes."""
    if kind == 2:
        text = (value if isinstance(value, bytes) else str(value).encode()).rstrip(b"\0") + b"\0"
        return len(text), text
    values = list(value) if isinstance(value, (tuple, list, bytes)) else [value]
    return len(values), struct.pack(f"<{len(values)}{_PACKED[kind]}", *values)


def _places(like: BoxSource | None) -> list[TagOfPlace]:
    if isinstance(like, RasterSource):
        return like.places
    return like.pages.places if isinstance(like, (TiffPlain, TiffSegments)) else []


def _description(new: FileToWrite, grid: TiffGrid) -> bytes:
    """What the axes are: OME's XML for `.ome.tif`, else tifffile's form."""
    path, shape, remark, pages = new.path, new.shape, new.remark, len(grid.pages)
    names = {0: "", 1: "Z" if new.axis == 0 else "C", 2: "CZ" if new.axis == 1 else "TC", 3: "TCZ"}
    if pages not in names:
        raise BrickError(f"{path}: {list(shape)} has too many axes for TIFF: write .npy or .zarr")
    axes = names[pages] + ("YXS" if grid.sampled else "YX")
    if not path.name.lower().endswith((".ome.tif", ".ome.tiff")):
        return json.dumps({"shape": list(shape), "axes": axes} | ({"description": remark} if remark else {})).encode()
    tifffile = needed("tifffile", str(path))
    text = tifffile.OmeXml(UUID="urn:uuid:00000000-0000-0000-0000-000000000000")
    stored = (grid.count, 1, 1, grid.height, grid.width, grid.samples)
    text.addimage(new.dtype, shape, stored, axes=axes, **({"Description": remark} if remark else {}))
    return str(text.tostring()).encode("ascii", "xmlcharrefreplace")
