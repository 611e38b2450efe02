"""`brickrt plan` as a tree, as a page, and the strategies side by side."""

from __future__ import annotations

import json
import re

import numpy as np
from onnx import TensorProto, helper

from tests.support.cli_models import save, told, value


def test_the_tree_has_every_subgraph_its_figures_and_its_layers(call, models):
    called = call("plan", models / "conv.onnx")
    assert called.code == 0
    report = json.loads(call("plan", models / "conv.onnx", "--json").out)
    heads = re.findall(r"^[├└]─ (\d+) (\w+)", called.out, re.MULTILINE)
    assert heads == [(str(k), entry["strategy"]) for k, entry in enumerate(report["plan"])]
    for words in ("Δ", "ρ", "Mflop", "why: ", "a brick", "Conv → 1×4×8×8"):
        assert words in called.out


def test_strategies_side_by_side(call, models):
    called = call("plan", models / "conv.onnx", "--compare")
    assert called.code == 0, called.err
    for words in ("auto", "layerwise", "padded", "memoized", "modelled ms", "beyond l2", "recomputed"):
        assert words in called.out
    compared = json.loads(call("plan", models / "conv.onnx", "--compare", "--json").out)["compare"]
    assert [entry["strategy"] for entry in compared] == ["auto", "layerwise", "padded", "memoized"]
    assert all(entry["projected_bytes"] > 0 and entry["tasks"] > 0 for entry in compared)
    assert compared[1]["merged"] == 0 == compared[1]["recomputed"]


def test_the_page_has_no_times(call, models, tmp_path):
    page = tmp_path / "plan.html"
    assert call("plan", models / "conv.onnx", "--html", page).code == 0
    html = page.read_text(encoding="utf-8")
    data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', html, re.S).group(1))
    (graph,) = data["graphs"]
    assert graph["runs"] == 0 and graph["timeline"] == [] and graph["drawing"]["nodes"]
    assert all(s["busy_us"] == 0 and s["flops"] >= 0 for s in graph["subgraphs"])
    assert data["summary"]["projected memory"]


def test_a_page_that_cannot_be_written_is_refused(call, models):
    called = call("plan", models / "conv.onnx", "--html", "no/such/plan.html")
    assert called.code == 2 and called.out == "" and "no/such" in called.err


def test_plan_says_where_and_why(call, models):
    report = told(call("plan", models / "conv.onnx", "--shape", "x=1,3,8,8", "--json"))
    assert report["inputs"] == {"x": [1, 3, 8, 8]}
    assert report["bytes"]["ends"] == 4 * 3 * 64 + 4 * 4 * 64
    assert report["bytes"]["constants"] > 0 and report["projected_bytes"] >= sum(report["bytes"].values())
    assert report["flops"] >= 2 * 4 * 64 * 27 and report["tasks"] > 0
    assert all(entry["why"] and entry["ops"] for entry in report["plan"])
    assert report["fallback"] == {} and report["later"] == []


def test_plan_in_words(call, models):
    called = call("plan", models / "conv.onnx", "--strategy", "memoized", "--brick", "4")
    assert called.code == 0
    assert "memoized" in called.out and "Conv" in called.out and "constants" in called.out
    assert "x[0] (N)" in called.err


def test_plan_for_another_device(call, models):
    assert told(call("plan", models / "conv.onnx", "--device-spec", "h200", "--json"))["device"]["kind"] == "cuda"


def test_plan_lists_what_is_known_only_later(call, tmp_path):
    """x -> NonZero -> Relu: how many are not zero is not known before."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="abs"),
        helper.make_node("NonZero", ["a"], ["i"], name="count"),
        helper.make_node("Cast", ["i"], ["f"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Relu", ["f"], ["y"], name="relu"),
    ]
    save(tmp_path / "late.onnx", nodes, [value("x", (4,))], [value("y", (1, None))])
    report = told(call("plan", tmp_path / "late.onnx", "--json"))
    assert "count" in report["fallback"]
    assert "relu" in [entry["node"] for entry in report["later"]]
    assert "relu" in call("plan", tmp_path / "late.onnx").out
    refused = call("plan", tmp_path / "late.onnx", "--save", tmp_path / "plan.json")
    assert refused.code == 2 and "'cast' (Cast)" in refused.err and not (tmp_path / "plan.json").exists()
    ran = told(call("run", tmp_path / "late.onnx", "--random", "--json", "--verify"))
    assert ran["outputs"][0]["shape"] == [1, 4] and ran["verify"]["max_abs_error"] == 0


def test_plan_needs_no_values_unless_they_are_shapes(call, tmp_path):
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"], name="r")]
    save(tmp_path / "reshape.onnx", nodes, [value("x", (4,)), value("s", (2,), TensorProto.INT64)], [value("y", None)])
    called = call("plan", tmp_path / "reshape.onnx")
    assert called.code == 2 and "'s'" in called.err
    np.savez(tmp_path / "in.npz", x=np.zeros(4, np.float32), s=np.array([2, 2]))
    report = told(call("run", tmp_path / "reshape.onnx", "--input", tmp_path / "in.npz", "--json"))
    assert report["outputs"][0]["shape"] == [2, 2]
