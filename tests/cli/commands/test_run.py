"""`brickrt run` on good input."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from brickrt.cli.commands import run
from brickrt.cli.outputs.run_report import latency_figures
from brickrt.cli.requests import EngineRequest, InputRequest, RunRequest
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.execution import report
from tests.support.cli_models import conv_model, numbers, told

KEYS = ("outputs", "latency_ms", "compile_ms", "device", "strategy", "threads", "plan", "fallback")
SUBGRAPH = ("ops", "strategy", "brick", "delta", "rho", "bricks", "tasks", "flops", "footprint_bytes", "why")
STATS = ("tasks", "complete_first", "waits", "revisits", "recomputed", "level_bytes")


def test_result_is_that_of_onnx(call, models, tmp_path):
    given = numbers(2, 3, 8, 8)
    np.save(tmp_path / "x.npy", given)
    called = call("run", models / "conv.onnx", "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy")
    assert called.code == 0, called.err
    expected = ReferenceEvaluator(onnx.load(models / "conv.onnx")).run(None, {"x": given})[0]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-4, atol=1e-4)
    assert called.err == ""
    for word in ("y", "2×4×8×8", "float32", "latency", "compiled in", "y.npy"):
        assert word in called.out


@pytest.mark.parametrize("options", [[], ["--device", "cpu", "--strategy", "memoized", "--brick", "4"]], ids=str)
def test_json_says_everything(call, models, options):
    report = told(call("run", models / "conv.onnx", "--random", "--json", "--verify", "--repeat", "3", *options))
    assert {*KEYS, "peak_bytes", "stats"} <= set(report)
    assert all(set(SUBGRAPH) <= set(entry) for entry in report["plan"])
    assert set(STATS) <= set(report["stats"])
    times = report["latency_ms"]
    assert times["min"] <= times["p50"] <= times["p90"] <= times["p99"] <= times["max"]
    assert times["median"] == times["p50"] and times["first"] > 0 and report["runs"] == 3
    (output,) = report["outputs"]
    assert (output["name"], output["shape"], output["type"]) == ("y", [1, 4, 8, 8], "float32")
    assert output["min"] == 0 < output["max"]
    assert report["verify"]["max_abs_error"] < 1e-4
    assert report["device"] == "cpu" and report["compile_ms"] > 0
    if options:
        assert {entry["strategy"] for entry in report["plan"]} == {"memoized"}


def test_options_reach_the_runtime(call, models):
    words = ("--device", "reference", "--strategy", "layerwise", "--max-layers", "1", "--threads", "1")
    report = told(call("run", models / "conv.onnx", "--random", "--json", *words))
    assert (report["device"], report["strategy"], report["threads"]) == ("reference", "layerwise", 1)


def test_percentiles_are_of_all_runs_but_the_warm_up():
    found = latency_figures(9.0, [float(k) for k in range(101)])
    assert found == {"first": 9, "p50": 50, "p90": 90, "p99": 99, "median": 50, "min": 0, "max": 100}
    assert latency_figures(1.0, [1.0])["p99"] == 1


def test_the_plan_is_shown_when_asked(call, models):
    short, long = (call("run", models / "conv.onnx", "--random", "--repeat", "2", *more).out for more in ([], ["-v"]))
    assert "p50" in short and "Conv" not in short and max(map(len, short.splitlines())) <= 80
    assert "Conv" in long and "tasks" in long
    assert short.splitlines()[0].split()[:3] == ["output", "shape", "type"]
    assert call("run", models / "conv.onnx", "--random").err.count("compiled for") == 0


def test_what_is_logged_is_a_line_when_asked(call, models, caplog):
    caplog.set_level("INFO", "brickrt")
    called = call("run", models / "conv.onnx", "--random", "--shape", "x=1,3,8,8", "-v")
    assert "subgraphs compiled for x [1, 3, 8, 8] in" in called.err and len(called.err.splitlines()) == 1
    assert [record.name for record in caplog.records] == ["brickrt"]


def test_quiet_says_nothing(call, models):
    called = call("run", models / "conv.onnx", "--random", "--quiet", "--shape", "x=1,3,8,8")
    assert (called.code, called.out, called.err) == (0, "", "")


def test_verify_is_told_in_words(call, models):
    called = call("run", models / "sum.onnx", "--random", "--verify")
    assert "verify   largest error" in called.out


def test_bugs_are_one_line_too(call, models, monkeypatch):
    monkeypatch.setattr("brickrt.cli.inputs.read_ahead.gather", lambda *_: 1 / 0)
    called = call("run", models / "sum.onnx", "--random")
    assert called.code == 1 and len(called.err.splitlines()) == 1
    assert "ZeroDivisionError" in called.err and "--debug" in called.err


def test_interrupt(call, models, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("brickrt.cli.inputs.read_ahead.gather", stop)
    called = call("run", models / "sum.onnx", "--random")
    assert (called.code, called.out, called.err) == (130, "", "brickrt: interrupted\n")


def test_conv_on_open_image_size(call, tmp_path):
    conv_model(tmp_path / "open.onnx", ("N", 3, "H", "W"))
    report = told(call("run", tmp_path / "open.onnx", "--random", "--shape", "x=1,3,9,7", "--json", "--verify"))
    assert report["outputs"][0]["shape"] == [1, 4, 9, 7]
    assert report["verify"]["max_abs_error"] < 1e-4


def test_the_reference_is_asked_in_its_own_way():
    """What a GPU is asked for is not for the engine that the outputs are compared with."""
    asked = EngineRequest(device="cuda", precision="fp16", launch="graph", strategy="padded", brick=8)
    reference = run._as_reference(RunRequest(Path("m.onnx"), InputRequest(), asked))
    choose_engine(reference["device"], launch=reference["launch"])
    assert (reference["precision"], reference["strategy"], reference["brick"]) == ("fp32", "padded", 8)


def test_traffic_is_modelled_for_who_reads_it_alone(call, models, monkeypatch):
    """It takes as long as many a run."""
    asked = []
    modelled = report.locality
    monkeypatch.setattr(report, "locality", lambda tasks: asked.append(tasks) or modelled(tasks))
    words = ("run", models / "conv.onnx", "--random", "--device", "cpu")
    assert "latency" in call(*words).out and not asked
    assert "beyond" in call(*words, "-v").out and asked


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--trace ./x.npy", "--trace x.npy: is an input of this run"),
        ("--report hard.npy", "--report hard.npy: is an input of this run"),
        ("--output hard.npy", "--output hard.npy: is an input of this run"),
        ("--output y.npy --trace m.onnx", "--trace m.onnx: is the model itself"),
        ("--top 1 --labels names.txt --report names.txt", "--report names.txt: is an input of this run"),
        ("--output hard.npy --max-memory 64GiB", "--output hard.npy: is an input of this run"),
        ("--output y.npy --max-memory 64GiB --report x.npy", "--report x.npy: is an input of this run"),
        ("--output hard.npy --window 8", "--output hard.npy: is an input of this run"),
        ("--output x.zarr --dask local:1 --input x.zarr/a", "--output x.zarr: holds an input of this run"),
    ],
)
def test_no_option_writes_over_what_is_read(call, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    conv_model(tmp_path / "m.onnx")
    np.save("x.npy", numbers(1, 3, 8, 8))
    os.link("x.npy", "hard.npy")
    Path("names.txt").write_text("a\nb\nc\nd\n")
    Path("x.zarr", "a").mkdir(parents=True)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    given = () if "--input" in words else ("--input", "x.npy")
    called = call("run", "m.onnx", *given, *words.split())
    assert called.code == 2 and called.out == "" and said in called.err and called.err.count("\n") == 1, called.err
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
