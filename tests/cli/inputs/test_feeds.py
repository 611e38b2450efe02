"""Numbers of files as inputs: the same in core and band by band."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tifffile
from onnx import helper

BANDS = ("--max-memory", "64GiB")


def elementwise(op, dtype, shape):
    """m.onnx: y = op(x, x)."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ends = [helper.make_tensor_value_info(name, kind, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node(op, ["x", "x"], ["y"])], "twice", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "m.onnx")


@pytest.mark.parametrize("taken", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize("held", [bool, np.uint8, np.int16, np.int64, np.float16, np.float64])
def test_numbers_of_files_are_taken_as_they_are_in_core_too(call, tmp_path, monkeypatch, taken, held):
    """One rule: whole numbers and floats become the network's type; what would lose its fraction is refused."""
    monkeypatch.chdir(tmp_path)
    elementwise("Add", taken, (1, 3, 8, 8))
    given = (np.arange(192).reshape(1, 3, 8, 8) * 1.3).astype(held)
    np.save("x.npy", given)
    np.savez("x.npz", x=given)
    runs = [call("run", "m.onnx", "--input", "x.npy", "--output", "core.npy")]
    runs += [call("run", "m.onnx", "--input", "x.npz", "--output", "archive.npy")]
    runs += [call("run", "m.onnx", "--input", "x.npy", "--output", "bands.npy", *BANDS)]
    if np.dtype(held).kind == "f" and taken is np.int32:
        assert [run.code for run in runs] == [2, 2, 2]
        assert all("holds float" in run.err and "the model takes int32: convert the file" in run.err for run in runs)
        return
    assert [run.code for run in runs] == [0, 0, 0], [run.err for run in runs]
    for name in ("core", "archive", "bands"):
        np.testing.assert_array_equal(np.load(f"{name}.npy"), 2 * given.astype(taken))


@pytest.mark.parametrize("pixels", [[], ["--mean", "0.5,0.4,0.3", "--std", "0.25"]], ids=["plain", "shifted"])
def test_pictures_for_float16_are_scaled_in_bands_too(call, tmp_path, monkeypatch, pixels):
    monkeypatch.chdir(tmp_path)
    elementwise("Add", np.float16, (1, 3, 40, 48))
    tifffile.imwrite("x.tif", np.random.default_rng(0).integers(0, 256, (40, 48, 3), np.uint8))
    for name, way in (("core", ()), ("bands", BANDS)):
        called = call("run", "m.onnx", "--input", "x.tif", "--output", f"{name}.npy", *pixels, *way)
        assert called.code == 0, called.err
    core = np.load("core.npy")
    assert 1 < core.max() < 8
    np.testing.assert_array_equal(np.load("bands.npy"), core)


@pytest.mark.parametrize("held", [[0, 300], [-1, 0]])
def test_whole_numbers_that_do_not_fit_are_refused(call, tmp_path, monkeypatch, held):
    monkeypatch.chdir(tmp_path)
    elementwise("Max", np.uint8, (1, 1, 2))
    np.save("x.npy", np.asarray([[held]]))
    called = call("run", "m.onnx", "--input", "x.npy")
    wrong = held[1] or held[0]
    assert called.code == 2 and called.err.count("\n") == 1
    assert f"x.npy: holds {wrong}, the model takes uint8, which has no such: convert the file" in called.err
