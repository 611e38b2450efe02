"""`brickrt quantize`, and `brickrt run` of what it writes."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import pytest

from tests.support.cli_models import told
from tests.support.graphs.layered_models import layered_model, pictures

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("onnxruntime")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Here: model.onnx, pairs.onnx of batches of two, photos/ of three pictures, arrays/ of two .npy files."""
    monkeypatch.chdir(tmp_path)
    onnx.save(layered_model(), "model.onnx")
    onnx.save(layered_model(batch=2), "pairs.onnx")
    for name in ("photos", "arrays", "empty"):
        (tmp_path / name).mkdir()
    for k, sample in enumerate(pictures(3)):
        np.save(f"arrays/a{k}.npy", sample["x"])
        Image.fromarray((sample["x"][0] * 255).astype(np.uint8).transpose(1, 2, 0)).save(f"photos/p{k}.png")
    return tmp_path


def test_a_folder_of_pictures_calibrates(folder, call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    called = call(*"quantize model.onnx --calibrate photos/ -o small.onnx --keep head --threads 1".split())
    assert called.code == 0 and called.err == ""
    lines = called.out.splitlines()
    assert max(map(len, lines)) <= 80 and lines[-1] == "written  small.onnx"
    text = " ".join(called.out.split())
    assert "ranges minmax of 3 inputs" in text and "layers 2 in bytes, 1 in float" in text
    assert "float: asked for" in text and "same class for" in text and "of 3 size" in text
    ran = told(call(*"run small.onnx --input photos/p0.png --threads 1 --json".split()))
    assert ran["outputs"][0]["name"] == "scores"


def test_batches_are_filled_and_others_checked(folder, call):
    words = (
        "quantize pairs.onnx --calibrate photos --check photos/p1.png --method percentile -o p.onnx --json --threads 1"
    )
    found = told(call(*words.split()))
    assert (found["calibrated_on"], found["checked_on"], found["method"]) == (2, 1, "percentile")
    assert [layer["op"] for layer in found["layers"]] == ["Conv", "Conv", "Gemm"]
    assert found["outputs"][0]["classified"] == 2 and found["outputs"][0]["sqnr_db"] > 15
    assert found["bytes"]["after"] == (folder / "p.onnx").stat().st_size


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("model.onnx -o q.onnx", "Missing option '--calibrate'"),
        ("model.onnx --calibrate photos", "Missing option '--output' / '-o'"),
        ("model.onnx --calibrate empty -o q.onnx", "empty: holds no file of"),
        ("model.onnx --calibrate none/ -o q.onnx", "none/: no such file"),
        ("model.onnx --calibrate photos -o model.onnx", "is the model itself"),
        ("model.onnx --calibrate photos -o photos/p0.png", "is an input of this run"),
        ("model.onnx --calibrate photos --check wide.npy -o wide.npy", "is an input of this run"),
        ("model.onnx --calibrate photos -o q.onnx --method best", "use one of minmax, entropy, percentile"),
        ("model.onnx --calibrate photos -o q.onnx --sqnr nan", "--sqnr nan is no ratio"),
        ("model.onnx --calibrate photos -o q.onnx --resize 9x9 --keep x", "no layer is called 'x'"),
        ("model.onnx --calibrate arrays -o q.onnx --preset raw", "--preset is of use with images only"),
        ("model.onnx --calibrate wide.npy -o q.onnx", "wide.npy: input 'x'"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(folder, call, words, message):
    np.save("wide.npy", np.zeros((1, 3, 8, 9), np.float32))
    called = call("quantize", *words.split())
    assert called.code == 2 and called.out == "" and message in called.err and called.err.count("\n") == 1
    assert not (folder / "q.onnx").exists()


def test_without_onnxruntime_what_to_install_is_said(folder, call, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr("brickrt.runtime.files.extras.find_spec", lambda name: None)
    called = call(*"quantize model.onnx --calibrate photos -o q.onnx".split())
    wanted = 'brickrt: quantize: needs the package onnxruntime: pip install "brickrt[quantize]"\n'
    assert called.code == 2 and called.err == wanted
