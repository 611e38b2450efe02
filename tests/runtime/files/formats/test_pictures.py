"""Pictures read box by box: what Pillow decodes, upright."""

from __future__ import annotations

import os

import numpy as np
import pytest
from PIL import Image

from brickrt.graph.errors import InputError
from brickrt.runtime.files.source import open_source
from tests.runtime.files.helpers import check_reads

COLOURS = np.random.default_rng(0).integers(0, 256, (17, 21, 3), np.uint8)
GREY, DEEP = COLOURS[..., 0], COLOURS[..., 1].astype(np.uint16) * 257
ALPHA = np.concatenate([COLOURS, COLOURS[..., :1]], axis=2)


@pytest.mark.parametrize(
    ("name", "pixels", "want"),
    [
        ("a.png", COLOURS, COLOURS),
        ("a.bmp", COLOURS, COLOURS),
        ("grey.png", GREY, GREY),
        ("deep.png", DEEP, DEEP),
        ("alpha.png", ALPHA, COLOURS),
        ("bits.png", GREY > 99, np.where(GREY > 99, 255, 0).astype(np.uint8)),
    ],
)
def test_boxes_of_pixels(tmp_path, name, pixels, want):
    Image.fromarray(pixels).save(tmp_path / name)
    source = open_source(tmp_path / name)
    assert source.buffer_bytes >= want.nbytes
    check_reads(source, want)
    source.close()


@pytest.mark.parametrize("end", [".jpg", ".webp"])
def test_what_loses_bits_is_as_pillow_decodes_it(tmp_path, end):
    Image.fromarray(COLOURS).save(tmp_path / f"a{end}")
    check_reads(open_source(tmp_path / f"a{end}"), np.asarray(Image.open(tmp_path / f"a{end}").convert("RGB")))


@pytest.mark.parametrize(("orientation", "want"), [(1, COLOURS), (3, COLOURS[::-1, ::-1]), (6, np.rot90(COLOURS, -1))])
def test_pictures_are_upright(tmp_path, orientation, want):
    exif = Image.Exif()
    exif[0x112] = orientation
    Image.fromarray(COLOURS).save(tmp_path / "a.png", exif=exif)
    check_reads(open_source(tmp_path / "a.png"), np.ascontiguousarray(want))


def test_another_content_is_another_identity(tmp_path):
    path = tmp_path / "a.bmp"
    Image.fromarray(COLOURS).save(path)
    before, first = os.stat(path), open_source(path).identity()
    assert open_source(path).identity() == first
    Image.fromarray(255 - COLOURS).save(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))
    assert open_source(path).identity() != first


def test_what_is_no_picture_is_refused(tmp_path):
    (tmp_path / "a.png").write_text("no picture")
    with pytest.raises(InputError, match=r"a\.png: is no image that can be read"):
        open_source(tmp_path / "a.png")
    Image.fromarray(COLOURS).save(tmp_path / "b.png")
    source = open_source(tmp_path / "b.png")
    Image.fromarray(GREY).save(tmp_path / "b.png")
    with pytest.raises(InputError, match=r"b\.png: changed while it was read"):
        source.read((0, 0, 0), np.empty((2, 2, 3), np.uint8))
    Image.fromarray(COLOURS).save(tmp_path / "c.png")
    (tmp_path / "c.png").write_bytes((tmp_path / "c.png").read_bytes()[:200])
    with pytest.raises(InputError, match=r"c\.png: is damaged"):
        open_source(tmp_path / "c.png").read((0, 0, 0), np.empty((17, 21, 3), np.uint8))
