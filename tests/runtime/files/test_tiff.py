"""TIFF images as tifffile writes and reads them."""

from __future__ import annotations

import numpy as np
import pytest
import tifffile

from brickrt.graph.errors import BrickError, InputError
from brickrt.runtime.files.boxes import PIECE_BYTES
from brickrt.runtime.files.formats import tiff_sink, tiff_source
from brickrt.runtime.files.formats.tiff_source import TiffPlain, TiffSegments
from brickrt.runtime.files.identity import checksum
from brickrt.runtime.files.journal import stored_checksum
from brickrt.runtime.files.sink import create_sink
from brickrt.runtime.files.source import open_source
from brickrt.runtime.files.tensors import as_file
from tests.runtime.files.helpers import check_reads, check_writes, swept, values

TILED, STRIPED = {"tile": (32, 16)}, {"rowsperstrip": 7}


@pytest.mark.parametrize("how", [{}, TILED, STRIPED, TILED | {"compression": "zlib"}, STRIPED | {"compression": "lzw"}])
@pytest.mark.parametrize("bigtiff", [False, True])
@pytest.mark.parametrize(
    ("shape", "dtype", "extra"),
    [
        ((50, 41), "u1", {}),
        ((50, 41, 3), "u2", {"photometric": "rgb"}),
        ((3, 50, 41), "u1", {"photometric": "rgb", "planarconfig": "separate"}),
        ((4, 50, 41), "f4", {"photometric": "minisblack"}),
        ((2, 3, 50, 41), ">i2", {"photometric": "minisblack", "byteorder": ">"}),
    ],
)
def test_tiff_images_are_read(tmp_path, shape, dtype, extra, how, bigtiff):
    want = values(shape, dtype)
    tifffile.imwrite(tmp_path / "a.tif", want, bigtiff=bigtiff, **how, **extra)
    source = open_source(tmp_path / "a.tif")
    assert isinstance(source, TiffSegments if "compression" in how or "tile" in how else TiffPlain)
    check_reads(source, want, times=6)
    source.close()


@pytest.mark.parametrize("extra", [{"ome": True, "tile": (16, 16)}, {"imagej": True}])
def test_images_of_microscopes_are_read(tmp_path, extra):
    want = values((5, 2, 33, 29), "u2")
    tifffile.imwrite(tmp_path / "a.ome.tif", want, metadata={"axes": "ZCYX"}, **extra)
    check_reads(open_source(tmp_path / "a.ome.tif"), want)


def test_full_size_is_read_of_a_pyramid(tmp_path):
    want = values((128, 96), "u1")
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        file.write(want, tile=(32, 32), subifds=1)
        file.write(want[::2, ::2], tile=(32, 32), subfiletype=1)
    check_reads(open_source(tmp_path / "a.tif"), want)


def test_predictors_and_jpeg_are_decoded(tmp_path):
    want = values((64, 48, 3), "u1")
    tifffile.imwrite(tmp_path / "a.tif", want, photometric="rgb", tile=(32, 32), compression="zlib", predictor=True)
    check_reads(open_source(tmp_path / "a.tif"), want)
    smooth = np.add.outer(np.arange(64), np.arange(48)).astype(np.uint8)
    tifffile.imwrite(tmp_path / "j.tif", smooth, tile=(32, 32), compression="jpeg")
    check_reads(open_source(tmp_path / "j.tif"), tifffile.imread(tmp_path / "j.tif"))


def test_each_tile_of_a_sweep_is_decoded_once(tmp_path):
    want, decoded = values((100, 70), "u2"), []
    tifffile.imwrite(tmp_path / "a.tif", want, tile=(32, 32), compression="zlib")
    source = open_source(tmp_path / "a.tif")
    load = source._reader._load
    source._reader._load = lambda lo, extents: decoded.append(lo) or load(lo, extents)
    np.testing.assert_array_equal(swept(source, 5), want)
    assert len(decoded) == len(set(decoded)) == 4 * 3


def test_pages_that_are_compressed_as_a_whole_are_refused(tmp_path, monkeypatch):
    tifffile.imwrite(tmp_path / "a.tif", values((100, 70), "u2"), compression="zlib", rowsperstrip=100)
    check_reads(open_source(tmp_path / "a.tif"), values((100, 70), "u2"))  # small ones are read
    monkeypatch.setattr(tiff_source, "_MOST_IN_ONE_SEGMENT", 10_000)
    with pytest.raises(
        InputError, match=r"a\.tif: is compressed in strips of .* convert it with: tiffcp .* tiled\.tif"
    ):
        open_source(tmp_path / "a.tif")


def test_a_missing_codec_is_named(tmp_path, monkeypatch):
    tifffile.imwrite(tmp_path / "a.tif", values((40, 32), "u1"), compression="lzw", tile=(16, 16))
    source = open_source(tmp_path / "a.tif")

    def missing(*args, **kwargs):
        raise ValueError("<COMPRESSION.LZW: 5> requires the 'imagecodecs' package")

    monkeypatch.setattr(source.pages.first, "decode", missing)
    with pytest.raises(BrickError, match=r'needs the package imagecodecs: pip install "brickrt\[codecs\]"'):
        swept(source, 8)


def test_a_damaged_tile_is_named(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", values((40, 32), "u1"), compression="zlib", tile=(16, 16))
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        at = file.pages[0].dataoffsets[2]
    with open(tmp_path / "a.tif", "r+b") as file:
        file.seek(at)
        file.write(bytes(20))
    with pytest.raises(InputError, match=r"a\.tif: segment 2 is damaged .*: write it again"):
        swept(open_source(tmp_path / "a.tif"), 8)
    (tmp_path / "b.tif").write_bytes(b"II*\0 something else")
    with pytest.raises(InputError, match=r"b\.tif: is damaged or no TIFF file"):
        open_source(tmp_path / "b.tif")


@pytest.mark.parametrize("name", ["a.tif", "a.ome.tif"])
@pytest.mark.parametrize("classic", [1 << 32, 0])
@pytest.mark.parametrize(
    ("shape", "dtype", "axes"),
    [
        ((70, 50), "f4", "YX"),
        ((70, 50, 3), "u1", "YXS"),
        ((70, 50, 2), "u2", "YXS"),
        ((70, 50, 4), "f4", "YXS"),
        ((6, 70, 50), "i2", "ZYX"),
        ((3, 5, 70, 50), "f8", "TCYX"),
    ],
)
def test_tiff_images_are_written(tmp_path, monkeypatch, name, classic, shape, dtype, axes):
    monkeypatch.setattr(tiff_sink, "_TILE", 32)
    monkeypatch.setattr(tiff_sink, "_CLASSIC", classic)
    want = values(shape, dtype)
    piece = tuple(3 if axis in "ZCT" else extent if axis == "S" else 21 for axis, extent in zip(axes, shape))
    check_writes(create_sink(tmp_path / name, shape, dtype, axis=0), want, piece)
    with tifffile.TiffFile(tmp_path / name) as file:
        assert (file.is_bigtiff, file.pages[0].is_tiled, file.is_ome) == (not classic, True, "ome" in name)
        assert file.series[0].axes == axes
        np.testing.assert_array_equal(file.asarray(), want)
    check_reads(open_source(tmp_path / name), want, times=3)


def test_colour_is_said_to_be_colour(tmp_path):
    create_sink(tmp_path / "a.tif", (20, 20, 3), "u1", axis=0).close()
    create_sink(tmp_path / "b.tif", (20, 20, 3), "f4", axis=0).close()
    assert [tifffile.TiffFile(tmp_path / f"{name}.tif").pages[0].photometric.name for name in "ab"] == [
        "RGB",
        "MINISBLACK",
    ]


def test_an_output_lies_where_its_input_did_on_earth(tmp_path):
    scale, tie, keys = (0.5, 0.5, 0.0), (0.0, 0.0, 0.0, 4e5, 5e6, 0.0), (1, 1, 0, 1, 1024, 0, 1, 1)
    tags = [(33550, 12, 3, scale), (33922, 12, 6, tie), (34735, 3, 8, keys), (42113, 2, 0, "-9999")]
    tifffile.imwrite(tmp_path / "a.tif", values((40, 30), "u2"), extratags=tags, tile=(16, 16))
    like = open_source(tmp_path / "a.tif")
    create_sink(tmp_path / "b.tif", (40, 30), "f4", axis=0, like=like).close()
    with tifffile.TiffFile(tmp_path / "b.tif") as file:
        found = file.pages[0].tags
        assert [found[code].value for code in (33550, 33922, 34735, 42113)] == [scale, tie, keys, "-9999"]


@pytest.mark.parametrize(("shape", "dtype"), [((9,), "f4"), ((9, 9), "c8"), ((9, 9), "?")])
def test_what_tiff_cannot_hold_is_refused(tmp_path, shape, dtype):
    with pytest.raises(BrickError, match=r"a\.tif: TIFF cannot hold"):
        create_sink(tmp_path / "a.tif", shape, dtype, axis=0)
    assert not list(tmp_path.iterdir())


def test_samples_are_written_together(tmp_path):
    sink = create_sink(tmp_path / "a.tif", (20, 20, 3), "u1", axis=0)
    with pytest.raises(BrickError, match="all samples of a pixel are written together: give all 3"):
        sink.write((0, 0, 0), np.zeros((5, 5, 1), np.uint8))
    sink.abandon()


def test_what_was_written_is_read_back_by_channel(tmp_path):
    """As the checksum of a box is made that is too large to be read at once."""
    want = values((400, 900, 3), "u1")
    sink = as_file(tmp_path / "a.tif", (1, 3, 400, 900), np.float32, stored=np.uint8)
    planes = np.ascontiguousarray(want.transpose(2, 0, 1)[None])
    sink.write((0, 0, 0, 0), planes.astype(np.float32))
    one = np.empty((1, 1, 40, 650), np.uint8)
    for channel in range(3):
        sink.read((0, channel, 250, 30), one)
        np.testing.assert_array_equal(one, planes[:, channel : channel + 1, 250:290, 30:680])
    assert stored_checksum(sink, np.dtype(np.uint8), (0, 0, 0, 0), planes.shape) == checksum(planes)
    assert planes.nbytes > PIECE_BYTES
    sink.close()
