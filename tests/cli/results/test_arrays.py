"""Outputs of a run: what is written, and how."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import TensorProto, helper

from brickrt.cli import files
from tests.support.cli_models import same_model, save, sum_model, told, value


def test_ranges_that_are_no_numbers_are_null(call, tmp_path):
    same_model(tmp_path / "same.onnx", (3,))
    np.save(tmp_path / "x.npy", np.array([np.nan, np.inf, 1], np.float32))
    called = call("run", tmp_path / "same.onnx", "--input", tmp_path / "x.npy", "--json", "--verify")
    report = json.loads(called.out, parse_constant=pytest.fail)
    (entry,) = report["outputs"]
    assert (entry["min"], entry["max"], entry["nonfinite"]) == (None, None, 2)
    assert report["verify"]["max_abs_error"] == 0
    assert (report["verify"]["compared"], report["verify"]["nonfinite"]) == (1, 2)
    assert "2 not finite" in call("run", tmp_path / "same.onnx", "--input", tmp_path / "x.npy").out


def test_a_comparison_of_nothing_fails(call, tmp_path):
    same_model(tmp_path / "same.onnx", (3,))
    np.save(tmp_path / "x.npy", np.full(3, np.nan, np.float32))
    called = call("run", tmp_path / "same.onnx", "--input", tmp_path / "x.npy", "--verify")
    assert called.code == 1 and "largest error" not in called.out
    assert "verify   nothing finite was compared: all 3 elements are NaN or infinite" in called.out
    assert called.err == "brickrt: --verify compared nothing: no element of 'y' is finite: give other inputs\n"


@pytest.mark.parametrize("names", [("file", "a/b"), ("../up", "y.npy"), ("ünï", "with space"), ("args", "kwds")])
def test_any_output_names_fit_in_archives(call, tmp_path, names):
    sum_model(tmp_path / "odd.onnx", outputs=names)
    out = tmp_path / "out.npz"
    assert call("run", tmp_path / "odd.onnx", "--random", "--output", out).code == 0
    with np.load(out) as archive:
        assert set(archive.files) == set(names)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["odd.onnx", "out.npz"]


def test_text_outputs(call, tmp_path):
    same_model(tmp_path / "text.onnx", (2,), TensorProto.STRING)
    np.save(tmp_path / "x.npy", np.array(["one", "three"]))
    words = ("run", tmp_path / "text.onnx", "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy")
    assert told(call(*words, "--json"))["outputs"][0]["type"] == "string"
    assert np.load(tmp_path / "y.npy").tolist() == ["one", "three"]
    assert "string" in call(*words).out


def test_sequences(call, tmp_path):
    nodes = [helper.make_node("SequenceConstruct", ["x", "x"], ["s"])]
    output = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    save(tmp_path / "sequence.onnx", nodes, [value("x", (2,))], [output])
    words = ("run", tmp_path / "sequence.onnx", "--random", "--verify")
    report = told(call(*words, "--json", "--output", tmp_path / "out.npz"))
    assert report["outputs"][0]["type"] == "sequence" and report["outputs"][0]["items"][1]["shape"] == [2]
    assert report["verify"]["max_abs_error"] == 0 and report["fallback"]
    with np.load(tmp_path / "out.npz") as archive:
        assert archive.files == ["s.0", "s.1"]
    called = call(*words)
    assert "sequence of 2" in called.out and "on the host" in called.out
    assert call(*words, "--output", tmp_path / "out.npy").code == 2
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.parametrize("said", [(28, "No space left on device"), ("12 requested and 3 written",)], ids=len)
def test_failing_writes_leave_what_was_there(call, models, tmp_path, monkeypatch, said):
    out = tmp_path / "out.npz"
    out.write_bytes(b"precious")

    def full(*_):
        raise OSError(*said)

    monkeypatch.setattr(files.os, "replace", full)
    called = call("run", models / "sum.onnx", "--random", "--shape", "a=1,4", "--output", out)
    assert called.code == 2 and called.out == ""
    assert "out.npz: the disk is full: free space" in called.err and len(called.err.splitlines()) == 1
    assert out.read_bytes() == b"precious"
    assert [p.name for p in tmp_path.iterdir()] == ["out.npz"]


def test_files_have_the_permissions_of_new_files(call, models, tmp_path):
    (tmp_path / "plain").touch()
    call("run", models / "sum.onnx", "--random", "--output", tmp_path / "out.npz")
    assert (tmp_path / "out.npz").stat().st_mode == (tmp_path / "plain").stat().st_mode
