"""Profiles are files of events as programs read them from ONNX Runtime's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import brickrt.onnxruntime as ort
from brickrt.graph.errors import BrickError
from tests.support.graphs.onnx_models import model, node, tensor


def profiled(prefix: str) -> ort.InferenceSession:
    """x → Add "sum" → NonZero "places", on the host → y"""
    nodes = [node("Add", "x x", "s"), node("NonZero", "s", "y")]
    nodes[0].name, nodes[1].name = "sum", "places"
    made = model(nodes, [tensor("x", (2, 3))], [tensor("y", (2, None), np.int64)])
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, prefix
    return ort.InferenceSession(made.SerializeToString(), options)


def test_events_of_runs_and_nodes(tmp_path):
    session, feed = profiled(str(tmp_path / "mine")), {"x": np.ones((2, 3), np.float32)}
    for _ in range(2):
        session.run(None, feed)
    path = Path(session.end_profiling())
    assert path.parent == tmp_path and path.name.startswith("mine_") and path.suffix == ".json"
    events = json.loads(path.read_text())
    assert [e["name"] for e in events if e["cat"] == "Session"] == ["model_loading", "model_run", "model_run"]
    nodes = [e for e in events if e["cat"] == "Node"]
    assert [e["args"]["op_name"] for e in nodes] == ["Add", "NonZero"] * 2
    assert [e["name"] for e in nodes[:2]] == ["sum_kernel_time", "places_kernel_time"]
    runs = [e for e in events if e["name"] == "model_run"]
    for run, inside in zip(runs, (nodes[:2], nodes[2:]), strict=True):
        for e in inside:
            assert run["ts"] <= e["ts"] + 1 and e["ts"] + e["dur"] <= run["ts"] + run["dur"] + 2  # whole µs
    assert session.get_profiling_start_time_ns() > 0
    session.run(None, feed)
    assert session.end_profiling() == str(path) and json.loads(path.read_text()) == events


def test_where_nothing_is_profiled():
    session = ort.InferenceSession(model([node("Neg", "x", "y")], [tensor("x", (1,))], [tensor("y", (1,))]))
    assert session.end_profiling() == "" and session.get_profiling_start_time_ns() == 0


def test_a_folder_that_is_not_there():
    with pytest.raises(BrickError, match="cannot be written"):
        profiled("/nowhere/at/all").end_profiling()
