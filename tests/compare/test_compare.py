"""x [1,4,6,6] -> Conv 3×3 -> y, on brickrt and on peers, of which some fail."""

from __future__ import annotations

import dataclasses
from importlib.util import find_spec

import numpy as np
import onnx
import pytest
from onnx import helper

from brickrt.compare import comparison as comparing
from brickrt.compare.comparison import compare, make_peers, mean_ratio
from brickrt.compare.difference import compares_nothing, difference
from brickrt.compare.machine import machine
from brickrt.compare.peers import PEERS, ComparedEngine, lacking, onnxruntime
from brickrt.compare.roofline import roofline
from brickrt.plan.device.device_spec import host_device
from brickrt.runtime.session.runtime import Runtime

FEEDS = {"x": np.random.default_rng(0).standard_normal((1, 4, 6, 6), dtype=np.float32)}


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    weights = np.random.default_rng(1).standard_normal((8, 4, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)],
        "small",
        [helper.make_tensor_value_info("x", 1, (1, 4, 6, 6))],
        [helper.make_tensor_value_info("y", 1, (1, 8, 6, 6))],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_peer_computes_the_same(model, tmp_path):
    row = compare("small", model, FEEDS, Runtime(model, threads=1), ("onnxruntime",), rounds=2, pause=0)
    assert row.best == "onnxruntime" and row.differences["onnxruntime"] < 1e-5
    assert row.ms["brickrt"].min <= row.ms["brickrt"].median <= row.ms["brickrt"].max
    figures = row.to_dict()
    assert figures["ratio_to_best"] == row.ratios["onnxruntime"].median == pytest.approx(mean_ratio([row]))
    assert figures["shapes"] == {"x": [1, 4, 6, 6]} and figures["roofline"]["over"] > 0
    onnx.save(model, tmp_path / "small.onnx")
    outputs = [onnxruntime(given, FEEDS, 1).run()[0] for given in (model, tmp_path / "small.onnx")]
    assert np.array_equal(*outputs)


def test_peers_that_fail_are_left_out(model, monkeypatch):
    def broken(*_):
        raise RuntimeError("no such\noperator")

    def breaks(*_):
        return ComparedEngine("breaks", broken)

    monkeypatch.setattr(comparing, "PEERS", {"broken": broken, "breaks": breaks, "absent": broken})
    monkeypatch.setattr(comparing, "lacking", lambda name: "not installed: get it" if name == "absent" else None)
    made, left_out = make_peers(model, FEEDS, 1, ("broken", "breaks", "absent"))
    assert made == []
    assert left_out["broken"] == left_out["breaks"] == "does not run this model: no such operator"
    assert left_out["absent"] == "not installed: get it"


def test_without_peers_there_is_no_ratio(model):
    row = compare("small", model, FEEDS, Runtime(model, threads=1), (), rounds=1, pause=0)
    assert row.best is None and mean_ratio([row]) is None and row.to_dict()["ratio_to_best"] is None


def test_missing_peers_say_how_to_get_them(monkeypatch):
    assert [lacking(name) is None for name in ("onnxruntime", "openvino")] == [
        find_spec(name) is not None for name in ("onnxruntime", "openvino")
    ]
    monkeypatch.setattr("brickrt.compare.peers.find_spec", lambda name: None)
    for name in PEERS:
        assert "pip install" in (lacking(name) or "")


def test_the_roofline_is_the_longest_of_its_parts(model):
    runtime = Runtime(model, threads=1)
    runtime.execute(FEEDS)
    spec = runtime.plan.plans[0].device
    bound = roofline(runtime.plan, spec, 1)
    assert bound.operations == 2 * 8 * 4 * 16 * 16  # 16 of 18 pairs of taps and rows are inside, and of columns
    assert bound.compute_ms == pytest.approx(bound.operations / spec.peak_gflops_per_core / 1e6)
    assert bound.bound_ms == max(bound.compute_ms, *bound.traffic_ms.values())
    assert bound.level_bytes["memory"] == 0  # all of it fits the shared cache
    small = dataclasses.replace(spec, l2=1024, l3=1024)
    assert roofline(runtime.plan, small, 1).traffic_ms["memory"] > 0
    assert bound.to_dict(2 * bound.bound_ms)["over"] == pytest.approx(2)


def test_the_machine_is_told():
    told = machine(host_device())
    assert told["device"]["cores"] >= 1 and told["libraries"]["numpy"] == np.__version__


def test_a_small_output_that_is_wrong_is_not_hidden_by_a_large_one():
    large, small = np.array([1000.0, 2000.0]), np.array([0.001, 0.002])
    found = difference([large + 0.5, small * 2], [large, small])
    counts = {"compared": 4, "nonfinite": 0}
    assert found == {"max_abs_error": 0.5, "max_rel_error": pytest.approx(1.0), **counts}
    assert difference([], []) == dict.fromkeys(found, 0)


def test_what_is_not_finite_is_counted_and_not_compared():
    mine = np.array([1.0, np.nan, np.inf, 2.0], np.float32)
    found = difference(mine, np.array([1.0, np.nan, np.inf, np.nan], np.float32))
    assert (found["compared"], found["nonfinite"], found["max_abs_error"]) == (1, 3, np.inf)
    assert not compares_nothing(found) and compares_nothing(difference(mine[1:3], mine[1:3]))
    assert not compares_nothing(difference(mine[:0], mine[:0]))


def test_a_peer_with_nothing_finite_is_unchecked(model):
    feeds = {"x": np.full((1, 4, 6, 6), np.nan, np.float32)}
    row = compare("small", model, feeds, Runtime(model, threads=1), ("onnxruntime",), rounds=1, pause=0)
    assert row.unchecked == ("onnxruntime",) and row.to_dict()["nonfinite"] == {"onnxruntime": 8 * 36}
