"""`brickrt bench`: figures, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest

from brickrt import zoo
from brickrt.cli.commands import bench
from brickrt.compare import interleave


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(interleave.time, "sleep", lambda seconds: None)


def test_bench_compares(call, models, tmp_path):
    out = tmp_path / "figures.json"
    words = ("bench", models / "conv.onnx", "--peers", "onnxruntime", "--rounds", 2, "--threads", 1)
    called = call(*words, "--json", "--output", out)
    assert called.code == 0, called.err
    report = json.loads(called.out)
    assert report == json.loads(out.read_text())
    row = report["networks"][0]
    assert set(row["ms"]) == {"brickrt", "onnxruntime"} and row["differences"]["onnxruntime"] < 1e-5
    assert row["best_peer"] == "onnxruntime" and report["geometric_mean"] == pytest.approx(row["ratio_to_best"])
    assert "x[0] (N)" in called.err
    text = call(*words).out
    assert "onnxruntime" in text and "roofline" in text and "×" in text


def test_a_comparison_of_nothing_fails(call, models, tmp_path):
    np.save(tmp_path / "x.npy", np.full((1, 3, 8, 8), np.nan, np.float32))
    words = ("--input", tmp_path / "x.npy", "--rounds", 1, "--threads", 1, "--peers", "onnxruntime")
    called = call("bench", models / "sum.onnx", "--peers", "onnxruntime", "--rounds", 1)
    assert called.code == 0 and "not finite" not in called.err
    called = call("bench", models / "conv.onnx", *words)
    assert called.code == 1 and "not finite" in called.out
    counted, why = called.err.splitlines()
    assert "256 elements of the outputs, beside onnxruntime, are not finite" in counted and "compared nothing" in why


def test_batch_fills_open_dimensions(call, models, tmp_path):
    words = ("--rounds", 1, "--threads", 1, "--peers", "", "--json")
    shapes = json.loads(call("bench", models / "sum.onnx", "--batch", 3, *words).out)["networks"][0]["shapes"]
    assert shapes == {"a": [3, 4], "b": [3, 4]}
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 8, 8), np.float32))
    called = call("bench", models / "conv.onnx", "--input", tmp_path / "x.npy", *words)
    assert json.loads(called.out)["networks"][0]["shapes"] == {"x": [2, 3, 8, 8]}


def test_a_network_of_the_zoo_by_name(call):
    called = call("bench", "mobilenetv2", "--size", "32", "--rounds", 1, "--threads", 1, "--peers", "", "--json")
    row = json.loads(called.out)["networks"][0]
    assert row["network"] == "mobilenetv2" and row["shapes"] == {"x": [1, 3, 32, 32]}
    assert row["roofline"]["operations"] > 1e6


def test_the_whole_zoo(call, monkeypatch):
    def small(name, batch=1, size=None):
        return built("vit-s16", batch, 32) if name == "vit-s16" else built("mobilenetv2", batch, 32)

    built = zoo.build
    monkeypatch.setattr(bench.zoo, "names", lambda: ["mobilenetv2", "vit-s16"])
    monkeypatch.setattr(bench.zoo, "build", small)
    called = call("bench", "--zoo", "--rounds", 1, "--peers", "onnxruntime", "--threads", 1)
    assert called.code == 0, called.err
    assert "vit-s16" in called.out and "geometric mean" in called.out


def test_missing_peers_take_one_line(call, models, monkeypatch):
    monkeypatch.setattr("brickrt.compare.peers.find_spec", lambda name: None)
    called = call("bench", models / "conv.onnx", "--shape", "x=1,3,8,8", "--rounds", 1, "--threads", 1)
    assert called.code == 0 and called.err.count("\n") == 1
    assert 'onnxruntime (not installed: pip install "brickrt[bench]")' in called.err and "torch" in called.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("", "MODEL"),
        ("resnet50 --zoo", "MODEL"),
        ("absent.onnx", "absent.onnx"),
        ("resnet51", "zoo list"),
        ("resnet50 --size 1", "size"),
        ("resnet50 --size a", "--size"),
        ("resnet50 --size 64 --shape x=1,3,64,64", "--shape"),
        ("{models}/conv.onnx --size 8", "--shape"),
        ("{models}/conv.onnx --peers onnxruntime,tensorrt", "'tensorrt'"),
        ("{models}/conv.onnx --input x.npy --batch 2", "--batch"),
        ("{models}/conv.onnx --input x.npy --seed 2", "--seed"),
        ("{models}/conv.onnx --batch 0", "--batch"),
        ("{models}/conv.onnx --rounds 0", "--rounds"),
        ("{models}/conv.onnx --threads 0", "threads"),
        ("{models}/conv.onnx --strategy fast", "--strategy"),
        ("{models}/conv.onnx --brick 0", "brick"),
        ("{models}/conv.onnx --output {models}", "folder"),
        ("{models}/conv.onnx --output {models}/./conv.onnx", "is the model itself"),
        ("{models}/conv.onnx --input {models}/x.npy --output {models}/x.npy", "is an input of this run"),
        ("--zoo --size 3", "--size"),
        ("--zoo --input x.npy", "--input"),
    ],
)
def test_bench_refuses(call, models, words, named):
    np.save(models / "x.npy", np.zeros((1, 3, 8, 8), np.float32))
    called = call("bench", *words.format(models=models).split())
    assert called.code == 2 and called.out == "" and called.err.count("\n") == 1, called.err
    assert named in called.err


def test_a_fixed_batch_cannot_be_changed(call, tmp_path):
    words = call("zoo", "export", "mobilenetv2", tmp_path / "net.onnx", "--size", "32")
    assert words.code == 0
    called = call("bench", tmp_path / "net.onnx", "--batch", 2)
    assert called.code == 2 and "open batch" in called.err
