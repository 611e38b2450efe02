"""`brickrt plan` as a tree, as a page, and the strategies side by side."""

from __future__ import annotations

import json
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from brickrt import zoo
from brickrt.cli.terminal import browser
from tests.support.cli_models import save, told, value
from tests.support.cpu.described import plan_for


def test_the_tree_has_every_subgraph_its_figures_and_its_layers(call, models):
    called = call("plan", models / "conv.onnx", "-v")
    assert called.code == 0
    report = json.loads(call("plan", models / "conv.onnx", "--json").out)
    heads = re.findall(r"^[├└]─ (\d+) (\w+)", called.out, re.MULTILINE)
    assert heads == [(str(k), entry["strategy"]) for k, entry in enumerate(report["plan"])]
    for words in ("Δ", "ρ", "Mflop", "why: ", "a brick", "Conv → 1×4×8×8"):
        assert words in called.out


def test_strategies_side_by_side(call, models):
    called = call("plan", models / "conv.onnx", "--compare")
    assert called.code == 0, called.err
    for words in ("auto", "layerwise", "padded", "memoized", "modelled ms", "beyond l2", "again"):
        assert words in called.out
    compared = json.loads(call("plan", models / "conv.onnx", "--compare", "--json").out)["compare"]
    assert [entry["strategy"] for entry in compared] == ["auto", "layerwise", "padded", "memoized"]
    assert all(entry["projected_bytes"] > 0 and entry["tasks"] > 0 for entry in compared)
    assert compared[1]["merged"] == 0 == compared[1]["recomputed"]


def test_a_plan_has_as_many_tasks_as_beside_others(call, tmp_path):
    """Joins, of which a U-Net that is merged has some, are no tasks of anybody."""
    onnx.save(zoo.build("unet", size=32, levels=1), tmp_path / "unet.onnx")
    report = json.loads(call("plan", tmp_path / "unet.onnx", "--compare", "--json").out)
    others = {entry["strategy"]: entry["tasks"] for entry in report["compare"]}
    assert report["tasks"] == others["auto"] > 0


def test_the_page_has_no_times(call, models, tmp_path):
    page = tmp_path / "plan.html"
    called = call("plan", models / "conv.onnx", "--html", page)
    assert called.code == 0 and called.out.splitlines()[-1] == f"written  {page}"
    html = page.read_text(encoding="utf-8")
    data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', html, re.S).group(1))
    (graph,) = data["graphs"]
    assert graph["runs"] == 0 and graph["timeline"] == [] and graph["drawing"]["nodes"]
    assert all(s["busy_us"] == 0 and s["operations"] >= 0 for s in graph["subgraphs"])
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
    assert "memoized" in called.out and "Conv" in called.out and "projected" in called.out
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
    assert "planned when values are known: cast (Cast), 1 more" in call("plan", tmp_path / "late.onnx").out
    refused = call("plan", tmp_path / "late.onnx", "--output", tmp_path / "plan.json")
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


@pytest.mark.parametrize("options", [(), ("--compare",)], ids=str)
def test_plan_fits_a_screen(call, tmp_path, options):
    """CumSum (on the host) → 40 norms, one after the other, with long names."""
    nodes = [helper.make_node("CumSum", ["x", "axis"], ["y0"], name="sum")]
    for k in range(40):
        name = f"a_layer_with_a_name_that_is_rather_long_{k}"
        nodes.append(helper.make_node("Softmax", [f"y{k}"], [f"y{k + 1}"], name=name, axis=1 + k % 3))
    axis = ("axis", np.array(1))
    save(tmp_path / "wide.onnx", nodes, [value("x", (1, 4, 8, 8))], [value("y40", (1, 4, 8, 8))], [axis])
    called = call("plan", tmp_path / "wide.onnx", *options)
    assert called.code == 0, called.err
    lines = called.out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert "on the host: nodes without a kernel, 1" in called.out and "-v has all" in called.out
    told_all = call("plan", tmp_path / "wide.onnx", "-v").out
    assert all(f"_{k}" in told_all for k in range(40)) and "on the host: sum" in told_all


def test_stages_behind_the_host_are_planned(call, tmp_path):
    """x → Abs → CumSum (on the host) → Relu → NonZero (which decides the shape of what follows) → Cast → Relu."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="abs"),
        helper.make_node("CumSum", ["a", "axis"], ["s"], name="sum"),
        helper.make_node("Neg", ["s"], ["n"], name="neg"),
        helper.make_node("NonZero", ["n"], ["i"], name="count"),
        helper.make_node("Cast", ["i"], ["f"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Relu", ["f"], ["y"], name="relu"),
    ]
    axis = ("axis", np.array(1))
    save(tmp_path / "staged.onnx", nodes, [value("x", (2, 4))], [value("y", (2, None))], [axis])
    report = told(call("plan", tmp_path / "staged.onnx", "--json"))
    assert report["stages"] == 2 and [entry["ops"] for entry in report["plan"]] == [["abs"], ["neg"]]
    assert [entry["stage"] for entry in report["plan"]] == [0, 1]
    assert report["plan"][1]["output_shape"] == [2, 4] and set(report["fallback"]) == {"sum", "count"}
    assert [entry["node"] for entry in report["later"]] == ["cast", "relu"]
    shown = call("plan", tmp_path / "staged.onnx", "-v").out
    assert "2 subgraphs in 2 stages" in shown and "stage 1" in shown and "made up values" in shown


def test_plan_says_what_of_a_quantized_network_stays_in_float(call, tmp_path, models):
    assert told(call("plan", models / "conv.onnx", "--json"))["integers"] is None
    model = quantized_chain()
    onnx.save(model, tmp_path / "q.onnx")
    found = told(call("plan", tmp_path / "q.onnx", "--json"))["integers"]
    assert found["products"] == 1 and found["in_float"] == ["plain"]
    assert "integers 1 products of bytes; in float 1: plain" in call("plan", tmp_path / "q.onnx").out


@pytest.mark.parametrize("products", [1, 2])
def test_plan_says_what_is_multiplied_in_bfloat16(call, models, monkeypatch, products):
    plan_for(monkeypatch, bfloat16_products=products, tiles=False)
    assert told(call("plan", models / "conv.onnx", "--json"))["bfloat16"] is None
    found = told(call("plan", models / "conv.onnx", "--precision", "bf16", "--json"))["bfloat16"]
    assert found["products"] + len(found["in_float"]) == 1 and found["gains"] == (products == 2)
    shown = call("plan", models / "conv.onnx", "--precision", "bf16").out
    assert ("products of bfloat16; " in shown) == found["gains"]
    assert ("all is computed in float32" in shown) == (not found["gains"])


def test_the_page_opens_in_the_browser(call, models, tmp_path, monkeypatch):
    shown, page = [], tmp_path / "p.html"
    monkeypatch.setattr(browser.webbrowser, "open", lambda url: shown.append(url) or len(shown) == 1)
    assert call("plan", models / "conv.onnx", "--shape", "x=1,3,8,8", "--html", page, "--open").err == ""
    called = call("run", models / "conv.onnx", "--random", "--shape", "x=1,3,8,8", "--report", page, "--open")
    assert called.code == 0 and "no browser could be started" in called.err
    assert shown == [page.as_uri()] * 2
    for words in (("plan", models / "conv.onnx"), ("run", models / "conv.onnx", "--random")):
        assert "--open is of use with --" in call(*words, "--open").err


def quantized_chain() -> onnx.ModelProto:
    """x → Q → DQ → Conv (of bytes) → Q → DQ → MatMul `plain`, whose weights are floats → y"""
    rng = np.random.default_rng(0)
    half, zero = numpy_helper.from_array(np.float32(0.05), "s"), numpy_helper.from_array(np.uint8(128), "z")
    weights = numpy_helper.from_array(rng.integers(-100, 100, (16, 16, 1, 1)).astype(np.int8), "w")
    constants = [half, zero, weights, numpy_helper.from_array(np.float32(0.01), "ws")]
    constants += [numpy_helper.from_array(np.int8(0), "wz")]
    constants += [numpy_helper.from_array(rng.standard_normal((8, 4)).astype(np.float32), "m")]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"], name="q0"),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"], name="d0"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], name="dw"),
        helper.make_node("Conv", ["xd", "wd"], ["c"], name="conv"),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["cq"], name="q1"),
        helper.make_node("DequantizeLinear", ["cq", "s", "z"], ["cd"], name="d1"),
        helper.make_node("MatMul", ["cd", "m"], ["y"], name="plain"),
    ]
    inputs, outputs = [value("x", (1, 16, 8, 8))], [value("y", (1, 16, 8, 4))]
    graph = helper.make_graph(nodes, "quantized", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_rules_of_the_paper_in_place_of_the_model(call, models):
    report = json.loads(call("plan", models / "conv.onnx", "--rules", "brickdl", "--json").out)
    assert report["options"]["rules"] == "brickdl"
    assert all("BrickDL's rules" in entry["why"] for entry in report["plan"])
    called = call("plan", models / "conv.onnx", "--rules", "brickdl", "--strategy", "padded")
    assert called.code != 0 and called.out == ""
    assert called.err == "brickrt: rules 'brickdl' choose the strategies: leave them out, or strategy padded\n"


@pytest.mark.parametrize("rules", ["brickdl", "unfused"])
def test_strategies_beside_other_rules(call, models, rules):
    """Only auto goes by rules; the others are as they are without."""
    compared = json.loads(call("plan", models / "conv.onnx", "--rules", rules, "--compare", "--json").out)["compare"]
    assert [entry["strategy"] for entry in compared] == ["auto", "layerwise", "padded", "memoized"]
    usual = json.loads(call("plan", models / "conv.onnx", "--compare", "--json").out)["compare"]
    assert compared[1:] == usual[1:]
