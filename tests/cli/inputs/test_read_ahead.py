"""Pictures that are read while the model is compiled: what headers tell, and what goes wrong behind them."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from PIL import Image

from brickrt.cli.inputs.feeds import expected_arrays, read_feed
from brickrt.cli.inputs.file_lists import InputFiles
from brickrt.cli.inputs.presets import Preprocessing
from brickrt.cli.inputs.read_ahead import FeedAhead
from brickrt.graph.errors import InputError
from brickrt.graph.onnx_import.source import SourceGraph, load
from tests.support.cli_models import same_model

PIXELS = np.random.default_rng(0).integers(0, 256, (30, 21, 4), np.uint8)
IMAGES = {
    "rgb.png": Image.fromarray(PIXELS[:, :, :3]),
    "rgba.png": Image.fromarray(PIXELS),
    "grey.png": Image.fromarray(PIXELS[:, :, 0]),
    "deep.png": Image.fromarray(PIXELS[:, :, 0].astype(np.uint16) * 257),
    "palette.png": Image.fromarray(PIXELS[:, :, :3]).quantize(8),
    "turned.png": Image.fromarray(PIXELS[:, :, :3]),
    "turned.jpg": Image.fromarray(PIXELS[:, :, :3]),
    "web.webp": Image.fromarray(PIXELS[:, :, :3]),
}
INPUTS = [((1, 3, "H", "W"), TensorProto.FLOAT), ((1, "H", "W", 3), TensorProto.UINT8), (("H", "W"), TensorProto.FLOAT)]
INPUTS += [((1, "C", "H", "W"), TensorProto.FLOAT), (("C", "H", "W"), TensorProto.FLOAT16)]
ASKED = {
    "as it is": Preprocessing(),
    "cut": Preprocessing(short_side=24, crop=20),
    "resized": Preprocessing(resize=(9, 8)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("pictures")
    for name, image in IMAGES.items():
        exif = Image.Exif()
        exif[274] = 6 if name.startswith("turned") else 1
        image.save(made / name, exif=exif)
    return made


def same(folder: Path, dims, kind) -> SourceGraph:
    return load(same_model(folder / "same.onnx", dims, kind))


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize(("dims", "kind"), INPUTS, ids=[str(dims) for dims, _ in INPUTS])
def test_headers_tell_what_is_read(folder, dims, kind, asked):
    source = same(folder, dims, kind)
    for name in IMAGES:
        given = InputFiles({"x": str(folder / name)}, name)
        expected = expected_arrays(source, given, ASKED[asked])
        read = read_feed(source, given, ASKED[asked]).arrays["x"]
        assert expected is not None
        assert (expected["x"].shape, expected["x"].dtype) == (read.shape, read.dtype), name


def test_headers_that_do_not_fit_tell_nothing(folder):
    """The error says why, once the file is read."""
    source = same(folder, (1, 3, 30, 30), TensorProto.FLOAT)
    given = InputFiles({"x": str(folder / "rgb.png")}, "rgb.png")
    assert expected_arrays(source, given, Preprocessing()) is None
    with pytest.raises(InputError, match="use --resize 30x30, or --preset imagenet"):
        read_feed(source, given, Preprocessing())


def test_damaged_pixels_are_one_line(call, folder, tmp_path):
    """The header is whole: the error comes once the model is compiled."""
    same_model(tmp_path / "same.onnx", (1, 3, "H", "W"))
    path = tmp_path / "half.png"
    path.write_bytes((folder / "rgb.png").read_bytes()[:900])
    called = call("run", tmp_path / "same.onnx", "--input", path)
    assert called.code == 2 and called.out == ""
    assert called.err.startswith(f"brickrt: {path}: is damaged (") and len(called.err.splitlines()) == 1


def test_what_is_read_already_is_compiled_for():
    done: Future = Future()
    done.set_exception(InputError("a.png: is damaged"))
    with pytest.raises(InputError, match="is damaged"):
        FeedAhead(done, {"x": np.zeros(1)}).types()
    assert FeedAhead(Future(), {"x": np.zeros(3)}).types()[0]["x"].shape == (3,)
