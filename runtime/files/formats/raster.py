"""Rasters that GDAL reads and tifffile does not, such as mosaics of many GeoTIFF files, by windows of rasterio."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from brickrt.graph.errors import InputError
from brickrt.runtime.files.boxes import Extents, nonempty, number_type
from brickrt.runtime.files.descriptor import open_file
from brickrt.runtime.files.extras import needed
from brickrt.runtime.files.formats.box_files import FileToRead
from brickrt.runtime.files.formats.chunked import GROUP_BYTES, ChunkedSource
from brickrt.runtime.files.formats.tiff_source import TagOfPlace, tags_of_place
from brickrt.runtime.files.identity import digest, file_identity

CACHE = 16 << 20  # bytes of GDAL's own cache, which would otherwise be a share of the machine's memory


class RasterSource(ChunkedSource):
    """A `BoxSource` of a raster: bands first, unless there is only one, then rows and columns."""

    def __init__(self, path: Path, raster: Any) -> None:
        bands = (raster.count,) if raster.count > 1 else ()
        shape = nonempty(str(path), (*bands, raster.height, raster.width))
        rows, columns = raster.block_shapes[0]
        kind = number_type(str(path), raster.dtypes[0])
        super().__init__(str(path), shape, kind, (*bands, rows, columns), GROUP_BYTES)
        self._raster, self._env = raster, needed("rasterio", str(path), "geo").Env

    @property
    def buffer_bytes(self) -> int:
        """What chunks take, and GDAL's cache."""
        return super().buffer_bytes + CACHE

    def load(self, lo: Extents, extents: Extents) -> np.ndarray:
        """The box, read by GDAL."""
        ends = tuple((begin, begin + extent) for begin, extent in zip(lo[-2:], extents[-2:]))
        bands = list(range(1 + lo[0], 1 + lo[0] + extents[0])) if len(lo) > 2 else 1
        try:
            with self._env(GDAL_CACHEMAX=CACHE):
                return np.asarray(self._raster.read(bands, window=ends), self.dtype)
        except Exception as e:  # each driver has errors of its own
            raise InputError(f"{self.name}: rows from {ends[0][0]} on cannot be read ({e}): write it again") from e

    @property
    def places(self) -> list[TagOfPlace]:
        """The tags of a GeoTIFF of the same place, as GDAL writes them."""
        if self._raster.crs is None:
            return []
        rasterio, tifffile = needed("rasterio", self.name, "geo"), needed("tifffile", self.name)
        one = {"driver": "GTiff", "width": 1, "height": 1, "count": 1, "dtype": "uint8"}
        with rasterio.MemoryFile() as memory:
            with memory.open(**one, crs=self._raster.crs, transform=self._raster.transform):
                pass
            with tifffile.TiffFile(BytesIO(memory.read())) as file:
                return tags_of_place(file.pages[0])

    def identity(self) -> str:
        """Digest of the sizes, times of last change and samples of all files that the raster is of."""
        return digest(_identity(Path(file)) for file in self._raster.files)

    def close(self) -> None:
        """Closes the raster."""
        super().close()
        self._raster.close()


def raster_source(asked: FileToRead) -> RasterSource:
    """A source of a raster in full size. Raises InputError where GDAL reads none, or its bands have several types."""
    path = asked.path
    rasterio = needed("rasterio", str(path), "geo")
    os.close(open_file(path))
    try:
        with rasterio.Env(GDAL_CACHEMAX=CACHE):
            raster = rasterio.open(path)
    except rasterio.errors.RasterioError as e:
        raise InputError(f"{path}: is damaged or no raster ({e}): write it again") from e
    if not raster.count or len(set(raster.dtypes)) > 1:
        raster.close()
        raise InputError(f"{path}: has bands of the types {', '.join(raster.dtypes) or 'none'}: convert them to one")
    return RasterSource(path, raster)


def _identity(path: Path) -> str:
    fd = open_file(path)
    try:
        return file_identity(fd, path)
    finally:
        os.close(fd)
