"""Inputs of a run: from files, or made up."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.cli_models import numbers, same_model, save, sum_model, told, value


def test_archives_are_matched_by_name(call, models, tmp_path):
    np.savez(tmp_path / "in.npz", b=numbers(1, 4), a=2 * numbers(1, 4))
    called = call("run", models / "sum.onnx", "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    assert called.code == 0, called.err
    with np.load(tmp_path / "out.npz") as out:
        np.testing.assert_allclose(out["sum"], 3 * numbers(1, 4), rtol=1e-6)
        np.testing.assert_allclose(out["product"], 2 * numbers(1, 4) ** 2, rtol=1e-6)


def test_named_files_even_with_equal_signs(call, tmp_path):
    sum_model(tmp_path / "odd.onnx", names=("a=b", "a"))
    np.save(tmp_path / "c=d.npy", numbers(1, 4))
    given = [f"a=b={tmp_path}/c=d.npy", f"a={tmp_path}/c=d.npy"]
    report = told(call("run", tmp_path / "odd.onnx", "--input", given[0], "--input", given[1], "--json"))
    assert report["outputs"][0]["max"] == pytest.approx(2 * numbers(1, 4).max())
    same_model(tmp_path / "same.onnx", ("N", 4))
    assert call("run", tmp_path / "same.onnx", "--input", tmp_path / "c=d.npy").code == 0


@pytest.mark.parametrize("order", [">f4", "<f4"])
def test_any_byte_order(call, tmp_path, order):
    same_model(tmp_path / "same.onnx", ("N", 4))
    np.save(tmp_path / "x.npy", numbers(1, 4).astype(order))
    assert call("run", tmp_path / "same.onnx", "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy").code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), numbers(1, 4))


def test_random_input_is_seeded(call, models):
    words = ("run", models / "conv.onnx", "--random", "--json", "--device", "reference")
    ranges = [told(call(*words, *more))["outputs"][0]["max"] for more in ([], ["--seed", "0"], ["--seed", "5"])]
    assert ranges[0] == ranges[1] != ranges[2]


def test_open_dimensions_are_one_unless_given(call, models):
    called = call("run", models / "sum.onnx", "--random", "--json")
    assert json.loads(called.out)["outputs"][0]["shape"] == [1, 4]
    assert "x[0]" not in called.err and "a[0] (N), b[0] (N)" in called.err
    called = call("run", models / "sum.onnx", "--random", "--json", "--shape", "a=5,4")
    assert json.loads(called.out)["outputs"][0]["shape"] == [5, 4]
    assert called.err == ""


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT64", "UINT8", "BOOL"])
def test_types_made_up_written_and_read_again(call, tmp_path, kind):
    same_model(tmp_path / "same.onnx", (50,), getattr(TensorProto, kind))
    out = tmp_path / "y.npy"
    report = told(call("run", tmp_path / "same.onnx", "--random", "--json", "--output", out))
    (entry,) = report["outputs"]
    assert entry["type"] == np.dtype(helper.tensor_dtype_to_np_dtype(getattr(TensorProto, kind))).name
    if kind in ("INT64", "UINT8"):
        assert 0 <= entry["min"] < entry["max"] < 10
    again = told(call("run", tmp_path / "same.onnx", "--input", out, "--json"))
    assert again["outputs"] == report["outputs"]


def test_models_without_inputs(call, tmp_path):
    constant = helper.make_node("Constant", [], ["y"], value_floats=[1.0, 2.0])
    save(tmp_path / "constant.onnx", [constant], [], [value("y", (2,))])
    assert told(call("run", tmp_path / "constant.onnx", "--json"))["outputs"][0]["max"] == 2
    np.save(tmp_path / "x.npy", numbers(2))
    assert "no inputs" in call("run", tmp_path / "constant.onnx", "--input", tmp_path / "x.npy").err
