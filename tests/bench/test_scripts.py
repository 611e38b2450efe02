"""The parts of the scripts in bench/ that need no long runs."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from bench import operator_cases, operators
from brickrt import zoo

SCRIPTS = Path(__file__).parents[2] / "bench"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))

    def load(name: str) -> ModuleType:
        return __import__(name)

    return load


def test_the_eleven_networks_have_the_sizes_of_the_comparison(script):
    eleven = script("networks").ELEVEN
    assert len(eleven) == 11 and set(eleven) < set(zoo.names())
    model = zoo.build("mobilenetv2", size=32)
    assert zoo.feeds(model)["x"].shape == (1, 3, 32, 32)


def test_variants_are_those_of_the_paper(script):
    ablations = script("ablations")
    names = [v.name for v in ablations.variants(("rules", "layers", "bricks"))]
    assert names[:6] == ["auto", "layerwise", "padded", "memoized", "brickdl", "unfused"]
    assert len(set(names)) == len(names) == 22
    assert len(list(ablations.variants(()))) == 4
    assert ablations.named("nafnet:64") == ("nafnet", 64)
    assert ablations.named("resnet34-3d:8x16x24") == ("resnet34-3d", (8, 16, 24))
    assert ablations.named("unet3d") == ("unet3d", 96)


def test_slower_than_forced_is_named(script):
    row = {
        "network": "net",
        "ms": {"auto": 2.0, "padded": 1.0},
        "auto_over_best": {"median": 2.0, "min": 1.9, "max": 3},
    }
    assert script("ablations").show_check(row).startswith("slower")
    row["auto_over_best"] = {"median": 1.04, "min": 1.0, "max": 1.1}
    assert script("ablations").show_check(row).startswith("ok")


def test_counts_of_perf_are_read(script):
    text = "# started\n\n1500,,cache-misses:u,1000,100.00,,\n<not supported>,,LLC-load-misses,0,100.00,,\n"
    assert script("traffic").parsed(text) == {"cache-misses": 1500}


def test_traffic_is_measured_or_the_reason_is_told(script, monkeypatch):
    traffic = script("traffic")
    traffic.why_not.cache_clear()
    monkeypatch.setenv("PATH", "")
    assert traffic.why_not() == "there is no perf" and traffic.measured_bytes(list, 1) == {}
    traffic.why_not.cache_clear()


def test_sizes_of_a_file_are_drawn_for_its_open_extents(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(SCRIPTS / "sizes"))
    files = __import__("file_networks")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "h", "w"])
    mask = helper.make_tensor_value_info("mask", TensorProto.INT64, ["batch", "w"])
    nodes = [helper.make_node("Identity", [name], [f"{name}2"]) for name in ("x", "mask")]
    ends = [helper.make_tensor_value_info(f"{v.name}2", v.type.tensor_type.elem_type, None) for v in (x, mask)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x, mask], ends)), tmp_path / "net.onnx")
    network = files.file_network(f"{tmp_path / 'net.onnx'}:60:128:32")
    h, w = network.draw(np.random.default_rng(0))
    assert {h, w} <= {64, 96, 128}
    fed = network.feed((h, w))
    assert fed["x"].shape == (1, 3, h, w)
    assert fed["mask"].shape == (1, w)
    assert fed["mask"].all()


def test_operators_are_timed_from_lines(capsys, monkeypatch):
    lines = ["Slice 2x9 =[1] =[7] =[1] =[2]", "CumSum 3x4 =(1) reverse=1", "Where bool:5 5 =positive:5"]
    lines += ["Resize 1x1x4x4 - =[1.0,1.0,2.0,2.0]", "Gather int64:2x3 int64:4"]
    monkeypatch.setattr(operator_cases, "CASES", "\n".join(lines))
    cases = operator_cases.operator_cases({"Slice", "CumSum", "Where", "Resize"})
    found = {case.name.split()[0]: case for case in cases}
    assert set(found) == {"Slice", "CumSum", "Where", "Resize"}
    assert [value.shape for value in found["Where"].feeds.values()] == [(5,), (5,)]
    assert found["CumSum"].model.graph.initializer[0].dims == [] and found["Resize"].model.graph.node[0].input[1] == ""
    monkeypatch.setattr(sys, "argv", ["operators", "Slice", "Where", "--rounds", "2", "--threads", "1"])
    operators.main()
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in out[:2]] == ["Slice", "Where"] and "error 0e+00" in out[0]
    assert out[2].endswith("is the geometric mean of 2 ratios")
