"""Outputs as pictures: rounding, cutting off, channels, and PNG files that Pillow reads."""

from __future__ import annotations

import io
import sys

import llvmlite
import numpy as np
import pytest
from PIL import Image

from brickrt.cli.inputs.presets import PRESETS, Preprocessing
from brickrt.cli.results import png
from brickrt.cli.results.huffman import deflated, packer
from brickrt.cli.results.pictures import PixelScale, all_pixels, planes_of, write_picture
from brickrt.graph.errors import BrickError


def packed(pixels: np.ndarray, threads: int = 2) -> np.ndarray:
    """What Pillow reads of the file that is written of these pixels."""
    file = io.BytesIO()
    png.write_png(file, pixels.shape, pixels.dtype, lambda top, end: pixels[top:end], threads)
    made = np.asarray(Image.open(file))
    return made[:, :, None] if made.ndim == 2 else made


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("size", [(1, 1), (1, 7), (9, 1), (37, 23)])
@pytest.mark.parametrize("large", [0, 1 << 24], ids=["own codes", "zlib"])
def test_png_files_hold_what_was_written(monkeypatch, channels, size, large):
    monkeypatch.setattr(png, "STRIP", 200)
    monkeypatch.setattr(png, "LARGE_PICTURE_BYTES", large)
    monkeypatch.setitem(sys.modules, png.LLVM, llvmlite)
    pixels = np.random.default_rng(0).integers(0, 256, (*size, channels), np.uint8)
    np.testing.assert_array_equal(packed(pixels), pixels)


def test_smooth_pictures_are_filtered(monkeypatch):
    """Rows alike, columns alike, noise, one value, and little noise on it: each strip has the filter that suits it."""
    monkeypatch.setattr(png, "STRIP", 64 * 64 * 3)
    rng, kinds, filtered = np.random.default_rng(0), [], png._filtered
    monkeypatch.setattr(png, "_filtered", lambda *given: kinds.append(filtered(*given)[0]) or filtered(*given))
    ramp = np.broadcast_to(np.arange(64, dtype=np.uint8)[:, None] * 4, (64, 64))
    stripes = np.broadcast_to(rng.integers(0, 256, 64, np.uint8), (64, 64))
    noise = np.where(rng.random((64, 64)) < 0.5, 3, 250).astype(np.uint8)
    plane = (100 + rng.normal(0, 9, (64, 64))).astype(np.uint8)
    pixels = np.repeat(np.concatenate([ramp, stripes, noise, 0 * noise + 100, plane])[:, :, None], 3, 2)
    np.testing.assert_array_equal(packed(pixels, threads=1), pixels)
    assert kinds == [png.LEFT, png.UP, png.NONE, png.LEFT, png.AVERAGE]


def test_what_repeats_is_looked_for_where_that_helps():
    """A drawing whose rows repeat is packed by zlib to a fiftieth of what codes of bytes would take."""
    row = np.random.default_rng(0).integers(0, 256, 500, np.uint8).tobytes()
    assert len(png._deflated(row * 100, True, packer())) < 2000
    noise = np.random.default_rng(1).normal(0, 9, 50_000).astype(np.int8).tobytes()
    assert png._deflated(noise, True, packer()) == deflated(noise, True, packer())


def test_sixteen_bits():
    pixels = np.random.default_rng(0).integers(0, 65536, (5, 4, 1), np.uint16)
    np.testing.assert_array_equal(packed(pixels), pixels)


def test_values_are_rounded_to_the_nearest_even_and_cut_off():
    values = np.array([[[-3, 0.5, 1.5, 2.5, 254.5, 255.4, 300, np.nan, np.inf, -np.inf]]], np.float32)
    rows = PixelScale(factor=1.0).rows(values, 0, 1)
    assert rows[0, :, 0].tolist() == [0, 0, 2, 2, 254, 255, 255, 0, 255, 0]


@pytest.mark.parametrize("name", ["imagenet", "unit", "raw"])
def test_a_preset_is_undone(name):
    pixels = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3) * 4
    asked = PRESETS[name]
    scale = 1 / 255 if asked.scale is None else asked.scale
    values = (pixels * scale - np.array(asked.mean or 0)) / np.array(asked.std or 1)
    planes = values.astype(np.float32).transpose(2, 0, 1)
    np.testing.assert_array_equal(all_pixels(planes, PixelScale.of(asked, 3), 2), pixels)


def test_what_else_values_may_be():
    ones = np.ones((1, 2, 2), np.float32)
    assert PixelScale.of(PRESETS["imagenet"], 1).rows(ones, 0, 1).max() == 255  # a mask of one channel
    assert PixelScale.of(PRESETS["ct"], 1).rows(ones, 0, 1).max() == 255  # a window, from 0 to 1
    assert PixelScale.of(Preprocessing(), 1, "uint16").rows(ones, 0, 1).max() == 65535
    assert PixelScale.of(Preprocessing(), 1, "uint8", 7.0).rows(ones, 0, 1).max() == 7
    assert PixelScale().rows(ones > 0, 0, 1).max() == 255
    assert PixelScale().rows(ones.astype(np.int64) * 300, 0, 1).max() == 255
    swapped = PixelScale.of(Preprocessing(swapped=True), 3).rows(np.stack([ones[0], 0 * ones[0], 0 * ones[0]]), 0, 1)
    assert swapped[0, 0].tolist() == [0, 0, 255]


@pytest.mark.parametrize(
    ("shape", "last", "planes"),
    [
        ((1, 3, 8, 9), False, (3, 8, 9)),
        ((3, 8, 9), False, (3, 8, 9)),
        ((8, 9), False, (1, 8, 9)),
        ((1, 8, 9, 3), False, (3, 8, 9)),
        ((1, 3, 9, 4), True, (4, 3, 9)),
        ((1, 8, 9, 5), False, None),
        ((2, 3, 8, 9), False, None),
        ((10,), False, None),
        ((1, 10), False, None),
        ((1, 3, 4, 8, 9), False, None),
    ],
)
def test_what_is_a_picture(shape, last, planes):
    found = planes_of(np.zeros(shape), last)
    assert (found is None and planes is None) or (found is not None and found.shape == planes)


@pytest.mark.parametrize(("suffix", "kind"), [("jpg", "JPEG"), ("webp", "WEBP"), ("bmp", "BMP"), ("PNG", "PNG")])
def test_the_name_says_the_format(tmp_path, suffix, kind):
    path = tmp_path / f"out.{suffix}"
    write_picture(path, np.full((3, 8, 9), 0.5, np.float32), PixelScale(), 1)
    made = Image.open(path)
    assert made.format == kind and made.size == (9, 8) and abs(int(np.asarray(made)[0, 0, 0]) - 128) < 3
    with pytest.raises(BrickError, match="leave out --as uint16") if kind != "PNG" else pytest.raises(OSError):
        write_picture(path, np.zeros((1, 2, 2), np.float32), PixelScale(dtype=np.dtype(np.uint16)), 1)
        raise OSError
