"""What is computed before a model runs: sums of shapes at once, more by the definitions, within a time."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from brickrt.graph.host.quick import QUICK_ELEMENTS
from brickrt.graph.ir import Node
from brickrt.graph.onnx_import.protobuf import onnx_node
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize import folded as module
from brickrt.graph.specialize.folded import folded, quick_constant
from brickrt.graph.specialize.stages import first_stage
from brickrt.graph.time_budget import UNWATCHED_ELEMENTS, preparing
from brickrt.ops.operators.move import View
from brickrt.ops.types import TensorType
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.by_definition import specialize_for
from tests.support.graphs.onnx_models import model, node, tensor

SHAPED = [
    node("Shape", "x", "shape"),
    node("Gather", "shape three", "width"),
    node("Mul", "width three", "wide"),
    node("Cast", "wide", "same", to=7),
    node("Unsqueeze", "same zero", "last"),
    node("Slice", "shape zero twos", "first"),
    node("Concat", "first minus last", "wanted", axis=0),
    node("Reshape", "x wanted", "y"),
]
"""x [2, 4, 6, 2] → y [2, 4, 2, 6]: extents are counted, also by a Cast that changes nothing."""
X = np.zeros((2, 4, 6, 2), np.float32)


def shaped():
    ints = {"three": np.int64(3), "zero": np.array([0]), "twos": np.array([2]), "minus": np.array([-1])}
    stage = first_stage(load(model(SHAPED, [tensor("x", X.shape)], "y", **ints)))
    return specialize_for(stage, {"x": X}).graph.nodes


def test_shapes_are_counted_without_watching_the_clock(monkeypatch):
    watched = []
    monkeypatch.setattr(sys, "setprofile", watched.append)
    with preparing():
        (made,) = shaped()
    assert made.op == View((2, 4, 2, 6)) and not watched


def test_quick_constants_are_what_definitions_give(monkeypatch):
    quick = shaped()
    monkeypatch.setattr(module, "quick_outputs", lambda *_: None)
    assert shaped() == quick


@pytest.mark.parametrize(
    ("elements", "at_once"), [(UNWATCHED_ELEMENTS, True), (QUICK_ELEMENTS // 2, True), (QUICK_ELEMENTS + 1, False)]
)
def test_few_elements_are_quick(elements, at_once):
    found = quick_constant(onnx_node(node("Add", "a a", "y"), {"": 17}, "n"), {"a": np.arange(elements)})
    assert (found is not None) == at_once


@pytest.mark.parametrize("shown", ["values places", "places"])
def test_all_outputs_of_a_quick_node_are_known(shown):
    nodes = [node("TopK", "given two", "values places", axis=0), node("Add", "places x", "y")]
    given = {"given": np.array([3.0, 9.0, 5.0], np.float32), "two": np.array([2])}
    proto = model(nodes, [tensor("x", [2], np.int64)], f"y {shown}".strip(), **given)
    found = Runtime(proto).execute({"x": np.array([10, 20])})
    np.testing.assert_array_equal(found["y"], [11, 22])
    np.testing.assert_array_equal(found["places"], [1, 2])


@pytest.mark.parametrize(("elements", "watches"), [(8, False), (UNWATCHED_ELEMENTS, True)])
def test_the_clock_is_watched_where_much_is_computed(elements, watches, monkeypatch):
    watched = []
    monkeypatch.setattr(sys, "setprofile", watched.append)
    constant, given, made = np.arange(elements), TensorType((elements,), np.dtype(np.int64)), (2, elements // 2)
    types = {"a": given, "b": TensorType(made, given.dtype)}
    with preparing():
        found = folded([Node("n", View(made), ("a",), "b")], {"a": constant, "other": constant}, types)
    np.testing.assert_array_equal(found["b"], constant.reshape(made))
    assert bool(watched) == watches and found.keys() == {"a", "b"}
