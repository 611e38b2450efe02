"""Rasters that GDAL reads, as rasterio writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from brickrt.graph.errors import InputError
from brickrt.runtime.files.sink import create_sink
from brickrt.runtime.files.source import open_source
from tests.runtime.files.helpers import check_reads, values

rasterio = pytest.importorskip("rasterio", reason="it reads these files")
MOSAIC = """<VRTDataset rasterXSize="{width}" rasterYSize="{height}"><SRS>EPSG:32633</SRS>
<GeoTransform>500000, 10, 0, 5000000, 0, -10</GeoTransform>{bands}</VRTDataset>"""
BAND = """<VRTRasterBand dataType="UInt16" band="{band}">{sources}</VRTRasterBand>"""
SOURCE = """<SimpleSource><SourceFilename relativeToVRT="1">{file}</SourceFilename><SourceBand>{band}</SourceBand>
<SrcRect xOff="0" yOff="0" xSize="{width}" ySize="{rows}"/>
<DstRect xOff="0" yOff="{begin}" xSize="{width}" ySize="{rows}"/></SimpleSource>"""


def mosaic(folder: Path, want: np.ndarray, cut: int) -> Path:
    """Two GeoTIFF files, one above the other, and what puts them together."""
    bands, height, width = want.shape
    parts = {"a.tif": (0, cut), "b.tif": (cut, height)}
    for file, (begin, end) in parts.items():
        told = {"height": end - begin, "width": width, "count": bands, "dtype": want.dtype, "compress": "lzw"}
        with rasterio.open(folder / file, "w", driver="GTiff", **told) as raster:
            raster.write(want[:, begin:end])
    each = [
        BAND.format(
            band=band,
            sources="".join(
                SOURCE.format(file=file, band=band, width=width, begin=begin, rows=end - begin)
                for file, (begin, end) in parts.items()
            ),
        )
        for band in range(1, bands + 1)
    ]
    path = folder / "mosaic.vrt"
    path.write_text(MOSAIC.format(width=width, height=height, bands="".join(each)))
    return path


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("bands", [1, 3])
def test_mosaics(tmp_path, bands):
    """Read by boxes; a change of a part is seen; an output lies at the same place."""
    want = values((bands, 37, 29), "u2")
    path = mosaic(tmp_path, want, 20)
    source = open_source(path)
    check_reads(source, want[0] if bands == 1 else want)
    before = source.identity()
    sink = create_sink(tmp_path / "y.tif", want.shape[1:], np.float32, axis=0, like=source)
    sink.write((0, 0), want[0].astype(np.float32))
    sink.close()
    source.close()
    with rasterio.open(path) as mosaicked, rasterio.open(tmp_path / "y.tif") as written:
        assert (written.crs, written.transform) == (mosaicked.crs, mosaicked.transform)
    mosaic(tmp_path, want + 1, 20)
    changed = open_source(path)
    assert changed.identity() != before
    changed.close()


def test_what_is_no_raster(tmp_path):
    (tmp_path / "a.jp2").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"a\.jp2: is damaged or no raster"):
        open_source(tmp_path / "a.jp2")
