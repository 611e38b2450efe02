"""Errors are caught under the names that programs know, as classes of ONNX Runtime's place for them."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as theirs

import brickrt.onnxruntime as ort
from brickrt.graph.errors import BrickError, Defect
from brickrt.onnxruntime.errors import load_error, run_error
from tests.support.graphs.onnx_models import model, node, tensor

STATE = ort.capi.onnxruntime_pybind11_state


def addition(op: str = "Add", domain: str = "") -> bytes:
    """x [N, 3] + b → y"""
    made = model(
        [node(op, "x b", "y")], [tensor("x", ("N", 3))], [tensor("y", ("N", 3))], b=np.arange(3, dtype=np.float32)
    )
    made.graph.node[0].domain = domain
    return made.SerializeToString()


@pytest.fixture(scope="module")
def sessions():
    return [there.InferenceSession(addition(), providers=["CPUExecutionProvider"]) for there in (ort, onnxruntime)]


X = np.ones((2, 3), np.float32)
WRONG_RUNS = {
    "unknown input": (None, {"x": X, "z": X}),
    "unknown output": (["w"], {"x": X}),
    "rank": (None, {"x": X[None]}),
    "extent": (None, {"x": X[:, :2]}),
    "type": (None, {"x": X.astype("f8")}),
}


@pytest.mark.parametrize("what", WRONG_RUNS)
def test_runs_raise_what_onnxruntime_raises(sessions, what):
    kinds = []
    for session in sessions:
        with pytest.raises(Exception) as caught:
            session.run(*WRONG_RUNS[what])
        kinds.append(type(caught.value).__name__)
    assert kinds[0] == kinds[1] == "InvalidArgument"
    assert issubclass(STATE.InvalidArgument, BrickError)


def test_a_missing_input_is_a_value_error(sessions):
    for session in sessions:
        with pytest.raises(ValueError, match="x"):
            session.run(None, {})


@pytest.mark.parametrize("given", ["/nowhere/model.onnx", b"no model" * 9, addition("Nonsense"), addition("A", "a.b")])
def test_models_raise_what_onnxruntime_raises(given):
    kinds = []
    for there in (ort, onnxruntime):
        with pytest.raises(Exception) as caught:
            there.InferenceSession(given, providers=["CPUExecutionProvider"])
        kinds.append(type(caught.value).__name__)
    assert kinds[0] == kinds[1] and hasattr(STATE, kinds[0])


def test_a_run_that_its_values_make_impossible():
    nodes = [node("Reshape", "x s", "y")]
    session = ort.InferenceSession(
        model(nodes, [tensor("x", (4,)), tensor("s", ("N",), np.int64)], [tensor("y", None)]).SerializeToString()
    )
    with pytest.raises(STATE.RuntimeException, match="Reshape"):
        session.run(None, {"x": np.ones(4, np.float32), "s": np.array([3, 3])})


def test_defects_stay_what_they_are():
    found = Defect("a defect")
    assert load_error(found, b"") is found and run_error(found) is found
    assert type(load_error(BrickError("no such device"), b"")) is STATE.Fail


def test_every_error_there_is_here():
    there = {name for name, kind in vars(theirs).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    rare = {"DeviceReset", "EngineError", "ModelLoaded", "ModelLoadCanceled", "ModelRequiresCompilation", "NotFound"}
    assert there - rare <= set(STATE.__all__)


def test_packages_find_the_errors_where_they_look(monkeypatch):
    for name in [name for name in sys.modules if name == "onnxruntime" or name.startswith("onnxruntime.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnxruntime", ort)
    capi = ort.capi
    try:
        for place in ("onnxruntime_pybind11_state", "_pybind_state"):
            assert importlib.import_module(f"onnxruntime.capi.{place}").InvalidArgument is STATE.InvalidArgument
        classes = importlib.import_module("onnxruntime.capi.onnxruntime_inference_collection")
        assert classes.InferenceSession is ort.InferenceSession and classes.OrtValue is ort.OrtValue
    finally:
        for name in [name for name in sys.modules if name.startswith("onnxruntime.")]:
            monkeypatch.delitem(sys.modules, name)
        ort.capi = capi  # which importing it under the other name has replaced
