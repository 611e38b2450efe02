"""TIFF, BigTIFF, OME-TIFF and GeoTIFF images: segments read by descriptor and decoded by tifffile, one at a time."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError, InputError
from brickrt.runtime.files.boxes import Extents, added, check_box, cut, nonempty, number_type, slices
from brickrt.runtime.files.descriptor import open_file, read_at
from brickrt.runtime.files.extras import needed
from brickrt.runtime.files.formats.box_files import FileToRead
from brickrt.runtime.files.formats.chunked import ChunkedSource
from brickrt.runtime.files.formats.flat import FlatBoxes, FlatLayout, FlatSource
from brickrt.runtime.files.identity import file_identity

_MOST_IN_ONE_SEGMENT = 64 << 20
_PLACE_ON_EARTH = (33550, 33922, 34264, 34735, 34736, 34737, 42113)

TagOfPlace = tuple[int, int, int, Any]
"""Code, type, count and value of a tag that says where on Earth an image lies."""


class TiffPages:
    """The pages of the first image in a file, in full size, as one array: pages first, then rows, columns and
    samples."""

    def __init__(self, path: Path) -> None:
        tifffile = needed("tifffile", str(path))
        os.close(open_file(path))
        try:
            self.file = tifffile.TiffFile(path)
            self.series = self.file.series[0]
            self.first = self.series.keyframe
            self._describe(path)
        except (tifffile.TiffFileError, IndexError, ValueError, KeyError, TypeError, OSError) as e:
            if isinstance(e, BrickError):
                raise
            raise InputError(f"{path}: is damaged or no TIFF file ({e}): write it again") from e

    def _describe(self, path: Path) -> None:
        self.name, shape = str(path), tuple(self.series.shape)
        self.shape = nonempty(self.name, shape)
        if self.first.dtype is None:
            raise InputError(f"{path}: has a type of pixels that is not supported: convert it to 8 or 16 bits")
        self.dtype = number_type(self.name, self.first.dtype)
        self.inner: Extents = tuple(self.first.shape)
        self.pages = shape[: len(shape) - len(self.inner)]
        if shape[len(self.pages) :] != self.inner or self.series.is_multifile or self.first.imagedepth > 1:
            raise InputError(f"{path}: is put together in a way that is not supported: write it again as plain pages")

    def page(self, index: Extents) -> Any:
        """The page at this place; None where the file has none."""
        place = int(np.ravel_multi_index(index, self.pages)) if self.pages else 0
        return self.series.pages[place]

    @property
    def places(self) -> list[TagOfPlace]:
        """The tags of a GeoTIFF, for an output of the same place."""
        return tags_of_place(self.first)

    def identity(self) -> str:
        """Digest of the file's size, time of last change and samples: see `file_identity`."""
        return file_identity(self.file.filehandle.fileno(), self.name)


class TiffSegments(ChunkedSource):
    """A `BoxSource` of tiles or strips that are decoded one by one."""

    def __init__(self, pages: TiffPages) -> None:
        self.pages = pages
        segment = tuple(pages.first.chunks)
        chunks = (1,) * (len(pages.shape) - len(segment)) + segment
        super().__init__(pages.name, pages.shape, pages.dtype, chunks)
        self._fd = pages.file.filehandle.fileno()

    def load(self, lo: Extents, extents: Extents) -> np.ndarray:
        """One segment, without what it has beyond the image."""
        lead = len(self.pages.pages)
        page = self.pages.page(lo[:lead])
        if page is None:
            return np.zeros(extents, self.dtype)
        first = self.pages.first
        place = tuple(begin // extent for begin, extent in zip(lo[lead:], (self.chunks or ())[lead:]))
        index = int(np.ravel_multi_index(place, first.chunked))
        offset, length = page.dataoffsets[index], page.databytecounts[index]
        if not offset or not length:
            return np.full(extents, first.nodata, self.dtype)
        data = bytearray(length)
        read_at(self._fd, memoryview(data), offset, self.name)
        return self._decoded(page, bytes(data), index, extents)

    def _decoded(self, page: Any, data: bytes, index: int, extents: Extents) -> np.ndarray:
        tables = {"jpegtables": page.jpegtables} if getattr(page, "jpegtables", None) else {}
        try:
            decoded = self.pages.first.decode(data, index, **tables)[0]
        except Exception as e:  # each codec has errors of its own
            if "imagecodecs" in str(e):
                raise BrickError(f'{self.name}: needs the package imagecodecs: pip install "brickrt[codecs]"') from e
            raise InputError(f"{self.name}: segment {index} is damaged ({e}): write it again") from e
        height, width = self._rows_and_columns(extents)
        return np.ascontiguousarray(decoded[0, :height, :width]).reshape(extents)

    def _rows_and_columns(self, extents: Extents) -> Extents:
        axes = self.pages.first.axes
        inner = extents[len(self.pages.pages) :]
        return inner[axes.index("Y")], inner[axes.index("X")]

    def identity(self) -> str:
        """Digest of the file's size, time of last change and samples: see `file_identity`."""
        return self.pages.identity()

    def close(self) -> None:
        """Closes the file."""
        super().close()
        self.pages.file.close()


class TiffPlain:
    """A `BoxSource` of pages that are not compressed, each in one piece: boxes are read by descriptor."""

    buffer_bytes = FlatSource.buffer_bytes

    def __init__(self, pages: TiffPages) -> None:
        self.pages = pages
        self.name, self.shape, self.dtype = pages.name, pages.shape, pages.dtype
        self.chunks: Extents | None = (1,) * (len(pages.shape) - 1) + pages.shape[-1:]
        self.axis = len(pages.pages) if len(pages.shape) < 5 else len(pages.pages) - 1
        self._fd = pages.file.filehandle.fileno()
        self._stored = pages.dtype.newbyteorder(pages.file.byteorder)

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Fills `out` with the box that begins at `lo`."""
        check_box(self.name, self.shape, self.dtype, lo, out)
        whole = self.pages.series.dataoffset
        if whole is not None:
            FlatBoxes(self._fd, FlatLayout(self.shape, self._stored, whole), self.name).read(lo, out)
            return
        lead = len(self.pages.pages)
        for offset, extents in cut(out.shape, (1,) * lead + out.shape[lead:]):
            part = out[slices(offset, extents)].reshape(out.shape[lead:])
            self._read_page(added(lo, offset)[:lead], lo[lead:], part)

    def _read_page(self, index: Extents, lo: Extents, out: np.ndarray) -> None:
        page = self.pages.page(index)
        if page is None:
            out[...] = 0
            return
        layout = FlatLayout(self.pages.inner, self._stored, page.dataoffsets[0])
        FlatBoxes(self._fd, layout, self.name).read(lo, out)

    def identity(self) -> str:
        """Digest of the file's size, time of last change and samples: see `file_identity`."""
        return self.pages.identity()

    def close(self) -> None:
        """Closes the file."""
        self.pages.file.close()


def tags_of_place(page: Any) -> list[TagOfPlace]:
    """The tags of a page that say where on Earth it lies."""
    tags = [page.tags.get(code) for code in _PLACE_ON_EARTH]
    return [(tag.code, int(tag.dtype), tag.count, tag.value) for tag in tags if tag is not None]


def tiff_source(asked: FileToRead) -> TiffSegments | TiffPlain:
    """A source of the first image in a file, in full size. Raises InputError for pages that are compressed as a
    whole, and larger than 64 MiB: nothing less could be read from them."""
    path = asked.path
    pages = TiffPages(path)
    first = pages.first
    if pages.series.dataoffset is not None or first.is_contiguous:
        return TiffPlain(pages)
    segment = math.prod(first.chunks) * pages.dtype.itemsize
    if segment > _MOST_IN_ONE_SEGMENT and not first.is_tiled:
        pages.file.close()
        raise InputError(
            f"{path}: is compressed in strips of {segment / 2**20:.0f} MiB, of which no part can be read:"
            f" convert it with: tiffcp -8 -t -w 256 -l 256 {path} tiled.tif"
        )
    return TiffSegments(pages)
