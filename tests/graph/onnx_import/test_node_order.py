"""Nodes that read what later ones compute: some converters write them, and ONNX Runtime runs them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from brickrt import Runtime
from brickrt.graph.errors import ModelError
from brickrt.graph.onnx_import.node_order import sort_nodes
from brickrt.graph.onnx_import.source import load

X = np.array([-1.0, 0.5, 2.0], np.float32)


def node(op: str, read: str, output: str, **attributes) -> onnx.NodeProto:
    return helper.make_node(op, read.split(), [output], name=output, **attributes)


def model(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    """From x to y."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
    graph = helper.make_graph(list(nodes), "disordered", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def order(graph: onnx.GraphProto) -> list[str]:
    sort_nodes(graph)
    return [n.name for n in graph.node]


DISORDERED = [node("Add", "a b", "y"), node("Exp", "b", "a"), node("Neg", "x", "c"), node("Relu", "c", "b")]


def test_a_network_out_of_order_runs():
    with Runtime(model(*DISORDERED), device="cpu") as runtime:
        relu = np.maximum(-X, 0)
        np.testing.assert_allclose(runtime.execute({"x": X})["y"], np.exp(relu) + relu, rtol=1e-6)


def test_the_message_stays_as_it_is():
    given = model(*DISORDERED)
    before = given.SerializeToString()
    load(given)
    assert given.SerializeToString() == before


def test_only_what_must_moves():
    assert order(model(*DISORDERED).graph) == ["c", "b", "a", "y"]
    sorted_ones = [node("Neg", "x", "q"), node("Exp", "x", "a"), node("Abs", "q", "b"), node("Add", "a b", "y")]
    assert order(model(*sorted_ones).graph) == ["q", "a", "b", "y"]


def test_bodies_are_put_in_order_and_what_they_read_comes_before_their_node():
    inner = [node("Mul", "t s", "z"), node("Neg", "s", "t")]
    body = helper.make_graph(inner, "body", [], [helper.make_tensor_value_info("z", TensorProto.FLOAT, [3])])
    cond = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    branch = node("If", "c", "y", then_branch=body, else_branch=body)
    given = model(branch, node("Constant", "", "c", value=cond), node("Exp", "x", "s"))
    given.graph.node[1].ClearField("input")
    with Runtime(given, device="cpu") as runtime:
        np.testing.assert_allclose(runtime.execute({"x": X})["y"], -(np.exp(X) ** 2), rtol=1e-6)
    assert order(given.graph)[-1] == "y"
    assert [n.name for n in given.graph.node[-1].attribute[0].g.node] == ["t", "z"]


def test_a_circle_is_named():
    with pytest.raises(ModelError, match="topologically sorted"):
        load(model(node("Add", "x b", "a"), node("Neg", "a", "b"), node("Exp", "b", "y")))
