"""Pictures as results of runs in bands and on windows: those of runs in core."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from PIL import Image

from tests.support.cli_models import save, told, value

PIXELS = np.random.default_rng(0).integers(0, 256, (70, 50, 3), np.uint8)
BANDS = ("--max-memory", "64GiB")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """`less.onnx` multiplies by a number, `six.onnx` gives no picture; a photograph."""
    monkeypatch.chdir(tmp_path)
    taken, less = [value("x", ("N", 3, "H", "W"))], [("factor", np.float32([0.6173]))]
    multiplied = [helper.make_node("Mul", ["x", "factor"], ["y"])]
    save(tmp_path / "less.onnx", multiplied, taken, [value("y", ("N", 3, "H", "W"))], less)
    joined = [helper.make_node("Concat", ["x", "x"], ["y"], axis=1)]
    save(tmp_path / "six.onnx", joined, taken, [value("y", ("N", 6, "H", "W"))])
    Image.fromarray(PIXELS).save("photo.png")
    return tmp_path


@pytest.mark.parametrize("stored", [(), ("--as", "uint16"), ("--as", "uint8:100")])
@pytest.mark.parametrize("bounds", [BANDS, ("--window", "32", "--overlap", "0")])
def test_the_picture_of_a_run_in_core(call, folder, stored, bounds):
    assert call("run", "less.onnx", "--input", "photo.png", "--output", "core.png", *stored).code == 0
    asked = ("run", "less.onnx", "--input", "photo.png", "--output", "made.png", *stored, *bounds, "--json")
    assert told(call(*asked))["outputs"] == {"y": "made.png"}
    made, core = (np.asarray(Image.open(f"{name}.png")).astype(int) for name in ("made", "core"))
    assert np.abs(made - core).max() <= (0 if bounds == BANDS else 1)  # blended values round otherwise
    assert sorted(p.name for p in folder.glob("*.png*")) == ["core.png", "made.png", "photo.png"]


def test_classes_are_a_picture(call, folder):
    asked = ("run", "less.onnx", "--input", "photo.png", "--output", "classes.png", "--argmax", "1", *BANDS)
    assert call(*asked).code == 0
    np.testing.assert_array_equal(np.asarray(Image.open("classes.png")), PIXELS.argmax(2))


def test_channels_may_be_last(call, folder):
    nodes = [helper.make_node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1])]
    save(folder / "last.onnx", nodes, [value("x", (1, 3, "H", "W"))], [value("y", (1, "H", "W", 3))])
    assert call("run", "last.onnx", "--input", "photo.png", "--output", "last.png", *BANDS).code == 0
    np.testing.assert_array_equal(np.asarray(Image.open("last.png")), PIXELS)


def test_what_is_no_picture_keeps_its_values(call, folder):
    called = call("run", "six.onnx", "--input", "photo.png", "--output", "six.png", *BANDS)
    assert (
        called.code == 2
        and "six.png: the output is [1, 6, 70, 50], no picture: the values are in six.png.npy" in called.err
    )
    np.testing.assert_allclose(np.load("six.png.npy")[0, :3], PIXELS.transpose(2, 0, 1) / 255, atol=1e-6)
    again = call("run", "six.onnx", "--input", "photo.png", "--output", "six.png", *BANDS)
    assert again.code == 2 and "six.png.npy: is there, where the values of six.png would be meanwhile" in again.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--output", "y.jpg"], "y.jpg: of pictures, runs in bands and windows write .png: change the name's end"),
        (["--output", "y.png", "--as", "int16"], "y.png: holds uint8 or uint16: leave out --as int16"),
        (["--output", "photo.png"], "photo.png: is an input of this run"),
        (["--output", "old.png", "--resume"], "old.png: is there, and there is no run of it to go on with"),
    ],
)
def test_refused_in_one_line(call, folder, words, said):
    Image.fromarray(PIXELS).save("old.png")
    called = call("run", "less.onnx", "--input", "photo.png", *words, *BANDS)
    assert called.code == 2 and said in called.err and called.err.count("\n") == 1
