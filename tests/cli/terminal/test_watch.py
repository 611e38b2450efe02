"""`brickrt run --trace --report`: files that agree with the run, whole or not at all."""

from __future__ import annotations

import json
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.cli_models import save, value


def late_model(path) -> None:
    """x → Abs → NonZero (on the host) → Cast → Relu → y, and a constant that folds away"""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="abs"),
        helper.make_node("NonZero", ["a"], ["i"], name="count"),
        helper.make_node("Cast", ["i"], ["f"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Constant", [], ["c"], name="constant", value_float=2.0),
        helper.make_node("Mul", ["f", "c"], ["m"], name="twice"),
        helper.make_node("Relu", ["m"], ["y"], name="relu"),
    ]
    save(path, nodes, [value("x", (4,))], [value("y", (1, None))])


def test_the_trace_names_every_node_and_covers_the_workers(call, tmp_path):
    late_model(tmp_path / "late.onnx")
    np.save(tmp_path / "x.npy", np.array([0, 1, 0, 2], np.float32))
    words = ("run", tmp_path / "late.onnx", "--input", tmp_path / "x.npy", "--repeat", "3")
    called = call(*words, "--trace", tmp_path / "t.json", "--trace-arrows", "--json")
    assert called.code == 0, called.err
    told = json.loads(called.out)
    assert told["written"] == {"trace": str(tmp_path / "t.json")} and told["runs"] == 3
    assert told["stats"]["host_nodes"]["count"] > 0
    trace = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    where = trace["otherData"]["nodes"]
    assert set(where) == {node.name for node in onnx.load(tmp_path / "late.onnx").graph.node}
    assert where["count"] == "host" and where["constant"] == "folded"
    assert all(re.fullmatch(r"(stage \d+ )?subgraph \d+", where[name]) for name in ("abs", "relu"))
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert sum(event["cat"] == "host" for event in slices) == 3
    named = {name for event in slices for name in event["args"].get("nodes", ())}
    assert named >= {name for name, place in where.items() if place != "folded"}


def test_the_report_says_what_ran(call, models, tmp_path):
    page = tmp_path / "r.html"
    called = call("run", models / "conv.onnx", "--random", "--repeat", "3", "--report", page)
    assert called.code == 0 and str(page) in called.out
    html = page.read_text(encoding="utf-8")
    data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', html, re.S).group(1))
    assert data["graphs"][0]["runs"] == 3
    assert {"peak memory", "projected memory", "tasks", "waits", "revisits", "GFLOP/s"} <= set(data["summary"])
    assert any("layerwise" in name for name in data["summary"])
    assert data["environment"]["cpu"] and data["environment"]["command"].startswith("brickrt")


def test_what_ran_on_the_host_says_what_it_cost(call, tmp_path):
    late_model(tmp_path / "late.onnx")
    called = call("run", tmp_path / "late.onnx", "--random", "-v")
    assert re.search(r"on the host: count \(.*\), \d+\.\d+ ms", called.out)


@pytest.mark.parametrize(
    "options",
    [
        ["--trace", "no/such/t.json"],
        ["--report", "no/such/r.html"],
        ["--trace", "."],
        ["--trace", "same", "--report", "same"],
        ["--report", "conv.onnx"],
        ["--trace-arrows"],
    ],
    ids=str,
)
def test_impossible_files_are_refused_before_anything_runs(call, models, monkeypatch, options):
    monkeypatch.chdir(models)
    monkeypatch.setattr("brickrt.cli.commands.run.Runtime", None)
    called = call("run", "conv.onnx", "--random", *options)
    assert called.code == 2 and called.out == "" and len(called.err.splitlines()) == 1
    assert options[0] in called.err or options[1] in called.err


def test_files_that_fail_leave_nothing(call, models, tmp_path, monkeypatch):
    def broken(out, *_):
        out.write("{")
        raise KeyboardInterrupt

    monkeypatch.setattr("brickrt.dashboard.report.trace.write_trace", broken)
    assert call("run", models / "conv.onnx", "--random", "--trace", tmp_path / "t.json").code == 130
    assert list(tmp_path.iterdir()) == []
