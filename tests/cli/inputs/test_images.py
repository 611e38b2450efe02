"""What becomes of an image: type, scale, channels, layout, size."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto
from PIL import Image

from tests.support.cli_models import same_model

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 5, 4), np.uint8)


@pytest.fixture
def tensor(call, tmp_path):
    """The tensor that a model with an input of these dimensions gets from an image."""

    def get(dims, *options, kind=TensorProto.FLOAT, pixels=PIXELS[:, :, :3], suffix="png", exif=1):
        turned = Image.Exif()
        turned[274] = exif  # orientation
        Image.fromarray(pixels).save(tmp_path / f"image.{suffix}", exif=turned)
        same_model(tmp_path / "same.onnx", dims, kind)
        image, out = tmp_path / f"image.{suffix}", tmp_path / "x.npy"
        words = ("run", tmp_path / "same.onnx", "--input", image, "--output", out, "--device", "reference")
        called = call(*words, *options)
        assert called.code == 0, called.err
        return np.load(out)

    return get


RGB = PIXELS[:, :, :3].astype(np.float32)
NCHW = RGB.transpose(2, 0, 1)[None]


def test_floats_are_from_zero_to_one(tensor):
    np.testing.assert_allclose(tensor((1, 3, 6, 5)), NCHW / 255, rtol=1e-6)


def test_scale_mean_std(tensor):
    made = tensor(("N", 3, "H", "W"), "--scale", "0.5", "--mean", "1,2,3", "--std", "2,4,8")
    per_channel = np.array([1, 2, 3]).reshape(3, 1, 1), np.array([2, 4, 8]).reshape(3, 1, 1)
    np.testing.assert_allclose(made, (NCHW * 0.5 - per_channel[0]) / per_channel[1], rtol=1e-6, atol=1e-6)


def test_turned_pictures_stand_upright(tensor):
    made = tensor(("N", 3, "H", "W"), exif=6)
    np.testing.assert_allclose(made, np.rot90(NCHW, -1, (2, 3)) / 255, rtol=1e-6)


def test_files_are_closed(tensor, monkeypatch):
    """Pillow closes a file by itself once its pixels are read, but not where only its header was."""
    opened, original = [], Image.open
    monkeypatch.setattr(Image, "open", lambda path: opened.append(original(path)) or opened[-1])
    tensor(("N", 3, "H", "W"))
    assert opened and all(image.fp is None or image.fp.closed for image in opened)


def test_one_number_is_for_all_channels(tensor):
    np.testing.assert_allclose(tensor((1, 3, 6, 5), "--mean", "-0.5"), NCHW / 255 + 0.5, rtol=1e-6)


def test_bytes_stay_as_they_are(tensor):
    made = tensor((1, 3, 6, 5), kind=TensorProto.UINT8)
    assert made.dtype == np.uint8
    np.testing.assert_array_equal(made, NCHW)


def test_half_precision(tensor):
    assert tensor((1, 3, 6, 5), kind=TensorProto.FLOAT16).dtype == np.float16


def test_channels_last_where_the_model_has_them_there(tensor):
    np.testing.assert_allclose(tensor((1, 6, 5, 3)), RGB[None] / 255, rtol=1e-6)
    np.testing.assert_allclose(tensor((1, "H", "W", None), "--layout", "nhwc"), RGB[None] / 255, rtol=1e-6)


@pytest.mark.parametrize(("dims", "shape"), [((3, 6, 5), (3, 6, 5)), ((6, 5), (6, 5)), (None, (1, 3, 6, 5))])
def test_ranks(tensor, dims, shape):
    assert tensor(dims).shape == shape


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB"), (4, "RGBA")])
@pytest.mark.parametrize("given", [1, 3, 4])
def test_channels_become_those_of_the_model(tensor, given, channels, mode):
    pixels = PIXELS[:, :, 0] if given == 1 else PIXELS[:, :, :given]
    expected = np.asarray(Image.fromarray(pixels).convert(mode)).reshape(6, 5, channels).transpose(2, 0, 1)
    np.testing.assert_allclose(tensor((1, channels, 6, 5), pixels=pixels)[0], expected / np.float32(255), rtol=1e-6)


def test_resized_only_when_asked(tensor):
    assert tensor((1, 3, "H", "W")).shape == (1, 3, 6, 5)
    assert tensor((1, 3, "H", "W"), "--resize", "8x6").shape == (1, 3, 8, 6)


@pytest.mark.parametrize("suffix", ["jpg", "jpeg", "JPG"])
def test_jpeg(tensor, suffix):
    assert tensor((1, 3, 6, 5), suffix=suffix).shape == (1, 3, 6, 5)


def test_without_pillow(call, tmp_path, monkeypatch):
    Image.fromarray(PIXELS).save(tmp_path / "image.png")
    same_model(tmp_path / "same.onnx", (1, 3, 6, 5))
    monkeypatch.setattr("brickrt.cli.inputs.images.find_spec", lambda _: None)
    called = call("run", tmp_path / "same.onnx", "--input", tmp_path / "image.png")
    assert called.code == 2 and "brickrt[images]" in called.err
