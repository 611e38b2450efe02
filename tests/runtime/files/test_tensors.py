"""Files as inputs and outputs of a model."""

from __future__ import annotations

import numpy as np
import pytest
import tifffile
from PIL import Image

from brickrt.cli.inputs.images import read_image
from brickrt.cli.inputs.presets import Preprocessing
from brickrt.graph.errors import BrickError, InputError
from brickrt.graph.onnx_import.tensor_info import TensorInfo
from brickrt.runtime.files import boxes, tensors
from brickrt.runtime.files.formats import chunked
from brickrt.runtime.files.source import open_source
from brickrt.runtime.files.tensors import as_file, as_tensor, unit_scale
from tests.runtime.files.helpers import check_reads, shuffled, values


@pytest.mark.parametrize(
    ("shape", "wanted", "made"),
    [
        ((9, 7, 3), (1, 3, None, None), lambda a: a.transpose(2, 0, 1)[None]),
        ((9, 7, 3), (None, 3, 9, 7), lambda a: a.transpose(2, 0, 1)[None]),
        ((9, 7, 3), (None, None, None, None), lambda a: a.transpose(2, 0, 1)[None]),
        ((3, 9, 7), (1, 3, None, None), lambda a: a[None]),
        ((3, 9, 7), (None, None, None, None), lambda a: a[None]),
        ((9, 7, 3), (1, None, None, 3), lambda a: a[None]),
        ((9, 7), (1, 1, None, None), lambda a: a[None, None]),
        ((9, 7, 1), (1, 1, None, None), lambda a: a.transpose(2, 0, 1)[None]),
        ((1, 2, 1, 9, 7), (None, 2, None, None), lambda a: a[:, :, 0]),
        ((5, 9, 7), (1, 1, 5, 9, 7), lambda a: a[None, None]),
        ((5, 9, 7, 2), (1, 2, None, None, None), lambda a: a.transpose(3, 0, 1, 2)[None]),
        ((1, 5, 9, 7, 2), (1, 2, None, None, None), lambda a: a.transpose(0, 4, 1, 2, 3)),
        ((2, 3, 9, 7), (2, 3, None, None), lambda a: a),
        ((9, 7), (9, 7), lambda a: a),
    ],
)
def test_axes_become_those_of_the_model(shape, wanted, made):
    stored = values(shape, "f4")
    check_reads(as_tensor(open_source(stored), wanted, "f4"), made(stored))


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [((9, 7, 3), (1, 1, None, None)), ((2, 9, 7), (9, 7)), ((9, 7), (1, 1, 8, 8)), ((5,), (1, 3, 5, 5))],
)
def test_shapes_that_do_not_fit_are_refused(shape, wanted):
    with pytest.raises(InputError, match=r"has the shape \[.*\], the model takes \[.*\]: cut or convert it"):
        as_tensor(open_source(values(shape, "f4")), wanted, "f4")


@pytest.mark.parametrize(
    ("scale", "mean", "std"), [(None, None, None), (0.5, None, None), (None, (0.4, 0.5, 0.6), (0.2, 0.25, 0.3))]
)
def test_images_are_scaled_to_the_bits_that_the_command_line_gives(tmp_path, scale, mean, std):
    pixels = values((19, 23, 3), "u1")
    Image.fromarray(pixels).save(tmp_path / "a.png")
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="rgb", tile=(16, 16), compression="zlib")
    info = TensorInfo(np.dtype(np.float32), (1, 3, None, None))
    want = read_image(tmp_path / "a.png", "x", info, Preprocessing(scale=scale, mean=mean, std=std)).array
    source = open_source(tmp_path / "a.tif")
    scale = unit_scale(source.dtype) if scale is None else scale
    check_reads(as_tensor(source, (1, 3, None, None), "f4", scale=scale, mean=mean, std=std), want)


def test_each_channel_has_its_own_mean_where_channels_are_last():
    stored = values((9, 7, 3), "u1")
    want = stored[None].astype(np.float32) - np.array([1, 2, 3], np.float32)
    check_reads(as_tensor(open_source(stored), (1, None, None, 3), "f4", mean=(1, 2, 3)), want)


def test_whole_numbers_become_floats_as_they_are_or_up_to_one():
    stored = values((9, 7), "u2")
    check_reads(as_tensor(open_source(stored), (1, 1, None, None), "f4"), stored[None, None].astype(np.float32))
    assert unit_scale(np.dtype("u2")) == 1 / 65535 and unit_scale(np.dtype("f4")) == 1


@pytest.mark.parametrize(
    ("dtype", "options", "said"),
    [
        ("u1", {"scale": 0.5}, "the model takes uint8, which is not scaled: leave scale, mean and std out"),
        ("f4", {"mean": (1.0, 2.0)}, "mean has 2 numbers for 3 channels: give 1 or 3"),
        ("i4", {}, "holds float64, the model takes int32: convert the file"),
        ("bool", {}, "holds float64, the model takes bool: convert the file"),
    ],
)
def test_conversions_that_make_no_sense_are_refused(dtype, options, said):
    with pytest.raises(InputError, match=said):
        as_tensor(open_source(np.zeros((9, 7, 3))), (1, 3, None, None), dtype, **options)


def test_floats_of_16_bits_are_scaled_and_shifted_as_32(monkeypatch):
    stored = values((9, 7, 3), "u1")
    options = {"scale": 1 / 255, "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.25, 0.3)}
    want = np.empty((1, 3, 9, 7), np.float32)
    as_tensor(open_source(stored), want.shape, "f4", **options).read((0, 0, 0, 0), want)
    monkeypatch.setattr(tensors, "pieces", lambda extents, itemsize: boxes.pieces(extents, itemsize, 40))
    check_reads(as_tensor(open_source(stored), want.shape, "f2", **options), want.astype(np.float16))


def test_whole_numbers_that_do_not_fit_are_no_others():
    source = as_tensor(open_source(np.array([[3, 255], [256, 0]])), (2, 2), np.uint8)
    source.read((0, 0), np.empty((1, 2), np.uint8))
    with pytest.raises(InputError, match="holds 256, the model takes uint8, which has no such: convert the file"):
        source.read((1, 0), np.empty((1, 2), np.uint8))


def test_the_axis_of_a_sweep_is_handed_on(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", values((40, 30, 3), "u1"), photometric="rgb", tile=(16, 16))
    source = open_source(tmp_path / "a.tif")
    tensor = as_tensor(source, (1, 3, None, None), "f4")
    assert (tensor.axis, source.axis, tensor.chunks) == (2, 0, (1, 3, 16, 16))
    tensor.axis = 3
    assert source.axis == 1 and isinstance(source, chunked.ChunkedSource)


def written(tmp_path, name, want, **options):
    """Writes an output in boxes of all channels, in no order."""
    sink = as_file(tmp_path / name, want.shape, want.dtype, **options)
    piece = (*want.shape[:2], *(5,) * (want.ndim - 2))
    for lo, extents in shuffled(want.shape, piece):
        sink.write(lo, want[tuple(slice(a, a + e) for a, e in zip(lo, extents))])
    sink.close()
    source = open_source(tmp_path / name)
    out = np.zeros(source.shape, source.dtype)
    source.read((0,) * out.ndim, out)
    return out


@pytest.mark.parametrize(
    ("name", "shape", "order"),
    [
        ("a.tif", (1, 3, 9, 7), (2, 3, 1)),
        ("a.tif", (1, 1, 9, 7), (2, 3)),
        ("a.tif", (1, 6, 9, 7), (1, 2, 3)),
        ("a.tif", (1, 1, 6, 9, 7), (2, 3, 4)),
        ("a.tif", (1, 2, 6, 9, 7), (1, 2, 3, 4)),
        ("a.tif", (2, 5, 9, 7), (0, 1, 2, 3)),
        ("a.nii", (1, 1, 6, 9, 7), (2, 3, 4)),
        ("a.nii", (1, 2, 6, 9, 7), (2, 3, 4, 1)),
        ("a.npy", (1, 3, 9, 7), (0, 1, 2, 3)),
        ("a.zarr", (1, 2, 6, 9, 7), (0, 1, 2, 3, 4)),
    ],
)
def test_outputs_are_laid_out_as_the_format_has_them(tmp_path, name, shape, order):
    want = values(shape, "f4")
    found = written(tmp_path, name, want)
    np.testing.assert_array_equal(
        found, want.transpose([*order, *(a for a in range(len(shape)) if a not in order)]).reshape(found.shape)
    )
    assert found.shape == tuple(shape[axis] for axis in order)


@pytest.mark.parametrize("stored", ["u1", "i1", "u2", "i4", "u8"])
def test_floats_are_rounded_and_clipped(tmp_path, stored):
    special = [np.nan, np.inf, -np.inf, 0.5, 1.5, 2.5, -0.4, -0.6, 254.6, 255.4, 300, -7, 1e30, -1e30, 2**31, 2**63]
    want = np.array(special, np.float32).reshape(1, 1, 4, 4)
    found = written(tmp_path, "a.npy", want, stored=stored)
    info = np.iinfo(stored)
    exact = [
        0 if np.isnan(v) else min(max(round(v) if np.isfinite(v) else v, info.min), info.max) for v in want.ravel()
    ]
    # 2**64 - 1 has no float64: the largest one below is taken
    limit = info.max if info.max < 1 << 53 else 2**64 - 2048
    assert [int(v) for v in found.ravel()] == [int(min(v, limit)) for v in exact]


def test_a_scale_is_applied_before_rounding(tmp_path):
    want = np.linspace(-0.1, 1.1, 24, dtype=np.float32).reshape(1, 1, 4, 6)
    found = written(tmp_path, "a.tif", want, stored="u1", scale=255)
    np.testing.assert_array_equal(found, np.clip(np.rint(want[0, 0] * np.float32(255)), 0, 255).astype(np.uint8))


def test_outputs_are_read_back_as_the_file_has_them(tmp_path):
    sink = as_file(tmp_path / "a.tif", (1, 3, 9, 7), "f4", stored="u1")
    sink.write((0, 0, 2, 0), np.full((1, 3, 4, 7), 6.6, np.float32))
    out = np.zeros((1, 3, 9, 7), np.uint8)
    sink.read((0, 0, 0, 0), out)
    assert out[0, :, :, 0].tolist() == [[0, 0, 7, 7, 7, 7, 0, 0, 0]] * 3
    sink.abandon()


@pytest.mark.parametrize(
    ("dtype", "options", "said"),
    [
        ("f4", {"stored": "?"}, "float32 cannot be stored as bool: give another type"),
        ("i8", {"stored": "u1"}, "int64 does not fit into uint8: give a larger type"),
        ("i4", {"scale": 2.0}, "int32 is stored as it is: leave the scale out"),
    ],
)
def test_outputs_that_cannot_be_stored_are_refused(tmp_path, dtype, options, said):
    with pytest.raises(BrickError, match=said):
        as_file(tmp_path / "a.npy", (1, 1, 4, 4), dtype, **options)
