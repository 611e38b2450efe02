"""`brickrt plan` as a tree, as a page, and the strategies side by side."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys


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


def test_words_are_completed():
    env = os.environ | {"_BRICKRT_COMPLETE": "complete_bash", "COMP_WORDS": "brickrt ru", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-m", "brickrt"], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["run"]
