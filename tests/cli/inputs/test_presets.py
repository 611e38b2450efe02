"""Presets: values, sizes, and what a model says of its own pixels."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from PIL import Image

from brickrt.cli.inputs.images import read_image
from brickrt.cli.inputs.presets import PRESETS, preprocessing
from brickrt.cli.inputs.resizing import fitted_size, reduce_while_decoding
from brickrt.cli.requests import ImageRequest
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import load
from brickrt.graph.onnx_import.tensor_info import TensorInfo
from tests.support.cli_models import same_model

MEAN, STD = np.array([0.485, 0.456, 0.406]).reshape(3, 1, 1), np.array([0.229, 0.224, 0.225]).reshape(3, 1, 1)


@pytest.mark.parametrize(
    ("preset", "size", "model", "made"),
    [
        ("imagenet", (500, 375), (None, None), ((341, 256), (224, 224))),
        ("imagenet", (375, 500), (299, 299), ((342, 456), (299, 299))),
        ("clip", (500, 375), (336, 336), ((448, 336), (336, 336))),
        ("unit", (500, 375), (None, None), ((500, 375), (500, 375))),
    ],
)
def test_sizes(preset, size, model, made):
    assert fitted_size(size, model, PRESETS[preset]) == made


def test_imagenet_is_what_torchvision_does(call, tmp_path):
    """Short side to 256 by linear interpolation, the middle 224, mean and deviation of each channel."""
    pixels = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    same_model(tmp_path / "same.onnx", ("N", 3, 224, 224))
    words = ("run", tmp_path / "same.onnx", "--input", tmp_path / "a.png", "--output", tmp_path / "x.npy")
    called = call(*words, "--device", "reference", "--preset", "imagenet")
    assert called.code == 0, called.err
    seen = Image.fromarray(pixels).resize((341, 256), Image.Resampling.BILINEAR).crop((58, 16, 282, 240))
    expected = (np.asarray(seen).transpose(2, 0, 1) / 255 - MEAN) / STD
    np.testing.assert_allclose(np.load(tmp_path / "x.npy")[0], expected, atol=1e-5)


def test_large_photographs_are_reduced_while_they_are_decoded(tmp_path):
    ramp = np.add.outer(np.arange(1200) / 12, np.arange(1600) / 16).astype(np.uint8)
    Image.fromarray(np.repeat(ramp[:, :, None], 3, 2)).save(tmp_path / "a.jpg", quality=95)
    with Image.open(tmp_path / "a.jpg") as image:
        reduce_while_decoding(image, (None, None), PRESETS["imagenet"])
        assert image.size == (800, 600)
    with Image.open(tmp_path / "a.jpg") as image:
        reduce_while_decoding(image, (None, None), PRESETS["unit"])
        assert image.size == (1600, 1200)
    info = TensorInfo(np.dtype(np.float32), (1, 3, 224, 224))
    made = read_image(tmp_path / "a.jpg", "x", info, PRESETS["imagenet"]).pixels
    exact = Image.open(tmp_path / "a.jpg").resize((341, 256), Image.Resampling.BILINEAR).crop((58, 16, 282, 240))
    assert np.abs(made.astype(int) - np.asarray(exact)).max() <= 2


def test_options_come_before_the_preset(tmp_path):
    source = load(same_model(tmp_path / "same.onnx", (1, 3, 8, 8)))
    found = preprocessing(source, ImageRequest("imagenet", mean=(0.5,), resize=(8, 8)))
    assert found.mean == (0.5,) and found.std == PRESETS["imagenet"].std and found.crop is None


@pytest.mark.parametrize(
    ("said", "values"),
    [
        ({}, (0, 1)),
        ({"Image.NominalPixelRange": "NominalRange_0_255"}, (0, 255)),
        ({"Image.NominalPixelRange": "Normalized_0_1"}, (0, 1)),
        ({"Image.NominalPixelRange": "Normalized_1_1"}, (-1, 1)),
        ({"Image.NominalPixelRange": "NominalRange_16_235"}, (16, 235)),
        ({"Image.BitmapPixelFormat": "Bgr8"}, (0, 1)),
    ],
)
def test_what_a_model_says_of_its_pixels(call, tmp_path, said, values):
    """A black pixel and a red one."""
    model = onnx.load(same_model(tmp_path / "same.onnx", (1, 3, 1, 2)))
    onnx.helper.set_model_props(model, said)
    onnx.save(model, tmp_path / "same.onnx")
    Image.fromarray(np.array([[[0, 0, 0], [255, 0, 0]]], np.uint8)).save(tmp_path / "a.png")
    words = ("run", tmp_path / "same.onnx", "--input", tmp_path / "a.png", "--device", "reference", "--output")
    assert call(*words, tmp_path / "x.npy").code == 0
    red = 2 if "Image.BitmapPixelFormat" in said else 0
    np.testing.assert_allclose(np.load(tmp_path / "x.npy")[0, red, 0], values, atol=1e-5)
    assert call(*words, tmp_path / "y.png").code == 0
    assert np.asarray(Image.open(tmp_path / "y.png")).tolist() == [[[0, 0, 0], [255, 0, 0]]]


def test_a_range_that_nobody_knows(tmp_path):
    model = onnx.load(same_model(tmp_path / "same.onnx", (1, 3, 1, 2)))
    onnx.helper.set_model_props(model, {"Image.NominalPixelRange": "Vivid"})
    onnx.save(model, tmp_path / "same.onnx")
    with pytest.raises(BrickError, match="NominalPixelRange=Vivid, which is unknown"):
        preprocessing(load(tmp_path / "same.onnx"), ImageRequest())
