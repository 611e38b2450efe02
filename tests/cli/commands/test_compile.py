"""`brickrt compile`, and `brickrt run` of what it writes."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from brickrt.cli.entry import main
from brickrt.runtime.compiled.processor import machine
from tests.runtime.compiled.networks import network, sample

pytestmark = pytest.mark.skipif(machine() != "x86_64 Linux", reason="compiled files are for x86-64 on Linux")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(network("N"), "model.onnx")
    np.save("x.npy", sample())
    return tmp_path


def test_a_file_is_written_and_run(folder, capsys):
    assert main("compile model.onnx -o model.brick --shape x=2,3,9,10".split()) == 0
    text = capsys.readouterr().out
    assert "target   host, x86_64 Linux" in text and "model.brick" in text and "packed weights" in text
    for name in ("model.onnx", "model.brick"):
        assert main(["run", name, "--input", "x.npy", "--output", f"{name}.npz", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["device"]
    one, other = (np.load(f"{name}.npz") for name in ("model.onnx", "model.brick"))
    assert sorted(one) == sorted(other) and all(np.array_equal(one[name], other[name]) for name in one)


def test_what_needs_layers_needs_the_model(folder, capsys):
    assert main(["compile", "model.onnx", "-o", "model.brick"]) == 0
    for option in (["--verify"], ["--report", "r.html"], ["--trace", "t.json"], ["--dashboard"]):
        capsys.readouterr()
        assert main(["run", "model.brick", "--random", *option]) == 2
        assert f"model.brick: is compiled, without layers: {option[0]} needs the .onnx file" in capsys.readouterr().err


def test_what_is_compiled_is_told(folder, capsys):
    assert main("compile model.onnx -o out.brick --target generic --json".split()) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert told["target"] == "generic" and told["needs"] == [] and told["inputs"] == {"x": [1, 3, 9, 10]}
    assert told["bytes"] == (folder / "out.brick").stat().st_size > told["constant_bytes"] > 0 and told["kernels"] > 2
    assert "open dimensions are 1: x[0] (N)" in captured.err


def test_a_file_has_the_precision_that_it_is_compiled_with(folder, capsys):
    assert main("compile model.onnx -o model.brick --precision bf16 --shape x=2,3,9,10".split()) == 0
    for name, options in (("model.onnx", ["--precision", "bf16"]), ("model.brick", [])):
        assert main(["run", name, "--input", "x.npy", "--output", f"{name}.npz", *options]) == 0
    one, other = (np.load(f"{name}.npz") for name in ("model.onnx", "model.brick"))
    assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("compile model.onnx -o m.brick --precision fp16", "--precision 'fp16' is impossible: use one of fp32, bf16"),
        ("compile model.onnx", "Missing option '--output' / '-o'"),
        ("compile model.onnx -o model.onnx", "is the model itself: give another path"),
        ("compile model.onnx -o there/model.brick", "there is no folder"),
        ("compile model.onnx -o m.brick --target mips", "--target 'mips' is impossible: use one of host, avx512"),
        ("plan made.brick", "made.brick: is compiled, and this needs the model: give the .onnx file"),
        ("run nowhere.brick --random", "nowhere.brick: cannot be read (No such file or directory)"),
    ],
)
def test_bad_input_is_one_line(folder, capsys, words, message):
    (folder / "made.brick").write_bytes(b"\x89brick\r\n")
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert sorted(p.name for p in folder.iterdir()) == ["made.brick", "model.onnx", "x.npy"]
