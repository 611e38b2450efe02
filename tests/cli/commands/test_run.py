"""`brickrt run` on good input."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from brickrt.cli import files
from brickrt.cli.commands import run
from brickrt.cli.requests import EngineRequest, InputRequest, RunRequest
from brickrt.runtime.engines import choose_engine
from tests.support.cli_models import conv_model, same_model, save, sum_model, value

KEYS = ("outputs", "latency_ms", "compile_ms", "device", "strategy", "threads", "plan", "fallback")
SUBGRAPH = ("ops", "strategy", "brick", "delta", "rho", "bricks", "tasks", "flops", "footprint_bytes", "why")
STATS = ("tasks", "complete_first", "waits", "revisits", "recomputed", "level_bytes")


def x(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def _json(called):
    assert called.code == 0, called.err
    return json.loads(called.out)


def test_result_is_that_of_onnx(call, models, tmp_path):
    given = x(2, 3, 8, 8)
    np.save(tmp_path / "x.npy", given)
    called = call("run", models / "conv.onnx", "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy")
    assert called.code == 0, called.err
    expected = ReferenceEvaluator(onnx.load(models / "conv.onnx")).run(None, {"x": given})[0]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-4, atol=1e-4)
    assert called.err == ""
    for word in ("y", "2×4×8×8", "float32", "latency", "median", "Conv", "y.npy"):
        assert word in called.out


@pytest.mark.parametrize("options", [[], ["--device", "cpu", "--strategy", "memoized", "--brick", "4"]], ids=str)
def test_json_says_everything(call, models, options):
    report = _json(call("run", models / "conv.onnx", "--random", "--json", "--verify", "--repeat", "3", *options))
    assert {*KEYS, "peak_bytes", "stats"} <= set(report)
    assert all(set(SUBGRAPH) <= set(entry) for entry in report["plan"])
    assert set(STATS) <= set(report["stats"])
    times = report["latency_ms"]
    assert times["min"] <= times["median"] <= times["max"] and times["min"] <= times["first"] <= times["max"]
    (output,) = report["outputs"]
    assert (output["name"], output["shape"], output["type"]) == ("y", [1, 4, 8, 8], "float32")
    assert output["min"] == 0 < output["max"]
    assert report["verify"]["max_abs_error"] < 1e-4
    assert report["device"] == "cpu" and report["compile_ms"] > 0
    if options:
        assert {entry["strategy"] for entry in report["plan"]} == {"memoized"}


def test_options_reach_the_runtime(call, models):
    words = ("--device", "reference", "--strategy", "layerwise", "--max-layers", "1", "--threads", "1")
    report = _json(call("run", models / "conv.onnx", "--random", "--json", *words))
    assert (report["device"], report["strategy"], report["threads"]) == ("reference", "layerwise", 1)


def test_median_is_of_all_runs():
    from brickrt.cli.commands.run import RepeatedRuns

    assert RepeatedRuns({}, [4.0, 1.0, 3.0], 0.0).latency() == {"first": 4.0, "median": 3.0, "min": 1.0, "max": 4.0}
    assert statistics.median([1.0]) == RepeatedRuns({}, [1.0], 0.0).latency()["median"]


def test_verify_is_told_in_words(call, models):
    called = call("run", models / "sum.onnx", "--random", "--verify")
    assert "verify   largest error" in called.out


# ---- inputs


def test_archives_are_matched_by_name(call, models, tmp_path):
    np.savez(tmp_path / "in.npz", b=x(1, 4), a=2 * x(1, 4))
    called = call("run", models / "sum.onnx", "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    assert called.code == 0, called.err
    with np.load(tmp_path / "out.npz") as out:
        np.testing.assert_allclose(out["sum"], 3 * x(1, 4), rtol=1e-6)
        np.testing.assert_allclose(out["product"], 2 * x(1, 4) ** 2, rtol=1e-6)


def test_named_files_even_with_equal_signs(call, tmp_path):
    sum_model(tmp_path / "odd.onnx", names=("a=b", "a"))
    np.save(tmp_path / "c=d.npy", x(1, 4))
    given = [f"a=b={tmp_path}/c=d.npy", f"a={tmp_path}/c=d.npy"]
    report = _json(call("run", tmp_path / "odd.onnx", "--input", given[0], "--input", given[1], "--json"))
    assert report["outputs"][0]["max"] == pytest.approx(2 * x(1, 4).max())
    same_model(tmp_path / "same.onnx", ("N", 4))
    assert call("run", tmp_path / "same.onnx", "--input", tmp_path / "c=d.npy").code == 0


@pytest.mark.parametrize("order", [">f4", "<f4"])
def test_any_byte_order(call, tmp_path, order):
    same_model(tmp_path / "same.onnx", ("N", 4))
    np.save(tmp_path / "x.npy", x(1, 4).astype(order))
    assert call("run", tmp_path / "same.onnx", "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy").code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x(1, 4))


def test_random_input_is_seeded(call, models):
    words = ("run", models / "conv.onnx", "--random", "--json", "--device", "reference")
    ranges = [_json(call(*words, *more))["outputs"][0]["max"] for more in ([], ["--seed", "0"], ["--seed", "5"])]
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
    report = _json(call("run", tmp_path / "same.onnx", "--random", "--json", "--output", out))
    (entry,) = report["outputs"]
    assert entry["type"] == np.dtype(helper.tensor_dtype_to_np_dtype(getattr(TensorProto, kind))).name
    if kind in ("INT64", "UINT8"):
        assert 0 <= entry["min"] < entry["max"] < 10
    again = _json(call("run", tmp_path / "same.onnx", "--input", out, "--json"))
    assert again["outputs"] == report["outputs"]


def test_models_without_inputs(call, tmp_path):
    constant = helper.make_node("Constant", [], ["y"], value_floats=[1.0, 2.0])
    save(tmp_path / "constant.onnx", [constant], [], [value("y", (2,))])
    assert _json(call("run", tmp_path / "constant.onnx", "--json"))["outputs"][0]["max"] == 2
    np.save(tmp_path / "x.npy", x(2))
    assert "no inputs" in call("run", tmp_path / "constant.onnx", "--input", tmp_path / "x.npy").err


# ---- outputs


def test_ranges_that_are_no_numbers_are_null(call, tmp_path):
    same_model(tmp_path / "same.onnx", (3,))
    np.save(tmp_path / "x.npy", np.array([np.nan, np.inf, 1], np.float32))
    called = call("run", tmp_path / "same.onnx", "--input", tmp_path / "x.npy", "--json", "--verify")
    report = json.loads(called.out, parse_constant=pytest.fail)
    (entry,) = report["outputs"]
    assert (entry["min"], entry["max"], entry["nonfinite"]) == (None, None, 2)
    assert report["verify"]["max_abs_error"] == 0
    assert "2 not finite" in call("run", tmp_path / "same.onnx", "--input", tmp_path / "x.npy").out


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
    assert _json(call(*words, "--json"))["outputs"][0]["type"] == "string"
    assert np.load(tmp_path / "y.npy").tolist() == ["one", "three"]
    assert "string" in call(*words).out


def test_sequences(call, tmp_path):
    nodes = [helper.make_node("SequenceConstruct", ["x", "x"], ["s"])]
    output = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    save(tmp_path / "sequence.onnx", nodes, [value("x", (2,))], [output])
    words = ("run", tmp_path / "sequence.onnx", "--random", "--verify")
    report = _json(call(*words, "--json", "--output", tmp_path / "out.npz"))
    assert report["outputs"][0]["type"] == "sequence" and report["outputs"][0]["items"][1]["shape"] == [2]
    assert report["verify"]["max_abs_error"] == 0 and report["fallback"]
    with np.load(tmp_path / "out.npz") as archive:
        assert archive.files == ["s.0", "s.1"]
    called = call(*words)
    assert "sequence of 2" in called.out and "on the host" in called.out
    assert call(*words, "--output", tmp_path / "out.npy").code == 2
    assert not (tmp_path / "out.npy").exists()


def test_failing_writes_leave_what_was_there(call, models, tmp_path, monkeypatch):
    out = tmp_path / "out.npz"
    out.write_bytes(b"precious")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    called = call("run", models / "sum.onnx", "--random", "--shape", "a=1,4", "--output", out)
    assert called.code == 2 and called.out == ""
    assert "No space left" in called.err and len(called.err.splitlines()) == 1
    assert out.read_bytes() == b"precious"
    assert [p.name for p in tmp_path.iterdir()] == ["out.npz"]


def test_files_have_the_permissions_of_new_files(call, models, tmp_path):
    (tmp_path / "plain").touch()
    call("run", models / "sum.onnx", "--random", "--output", tmp_path / "out.npz")
    assert (tmp_path / "out.npz").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_bugs_are_one_line_too(call, models, monkeypatch):
    monkeypatch.setattr("brickrt.cli.commands.run.gather", lambda *_: 1 / 0)
    called = call("run", models / "sum.onnx", "--random")
    assert called.code == 1 and len(called.err.splitlines()) == 1
    assert "ZeroDivisionError" in called.err and "--debug" in called.err


def test_interrupt(call, models, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("brickrt.cli.commands.run.gather", stop)
    called = call("run", models / "sum.onnx", "--random")
    assert (called.code, called.out, called.err) == (130, "", "brickrt: interrupted\n")


def test_conv_on_open_image_size(call, tmp_path):
    conv_model(tmp_path / "open.onnx", ("N", 3, "H", "W"))
    report = _json(call("run", tmp_path / "open.onnx", "--random", "--shape", "x=1,3,9,7", "--json", "--verify"))
    assert report["outputs"][0]["shape"] == [1, 4, 9, 7]
    assert report["verify"]["max_abs_error"] < 1e-4


def test_the_reference_is_asked_in_its_own_way():
    """What a GPU is asked for is not for the engine that the outputs are compared with."""
    asked = EngineRequest(device="cuda", precision="fp16", launch="graph", strategy="padded", brick=8)
    reference = run._as_reference(RunRequest(Path("m.onnx"), InputRequest(), asked))
    choose_engine(reference["device"], launch=reference["launch"])
    assert (reference["precision"], reference["strategy"], reference["brick"]) == ("fp32", "padded", 8)
