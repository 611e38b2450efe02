"""Values that follow from a few integers are known once these are."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import Specialized, first_stage, with_deciding_inputs
from brickrt.ops.types import TensorType
from tests.support.graphs.onnx_models import graph, model, node, tensor

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
RATE = np.array(16000)


def first(proto, known=(), **arrays: np.ndarray) -> Specialized:
    stage = with_deciding_inputs(first_stage(load(proto)))
    types = {name: TensorType(a.shape, a.dtype) for name, a in arrays.items()}
    return specialize(stage, types, {name: arrays[name] for name in known})


def choice(condition: str):
    return node(
        "If",
        condition,
        "a",
        then_branch=graph([node("Relu", "x", "u")], outputs="u"),
        else_branch=graph([node("Neg", "x", "v")], outputs="v"),
        name="choice",
    )


def by_rate(dims=(), dtype=np.int64):
    """x → sr = 16000 ? relu : neg → exp"""
    nodes = [node("Equal", "sr k", "c"), choice("c"), node("Exp", "a", "y")]
    return model(nodes, [tensor("x", [2, 3]), tensor("sr", dims, dtype)], k=np.array(16000, dtype))


def test_a_condition_asks_for_the_integer_that_decides_it():
    asked = first(by_rate(), x=X, sr=RATE)
    assert asked.need_values == asked.deciding == {"sr"}
    part = first(by_rate(), ["sr"], x=X, sr=RATE)
    assert (part.rest, part.host_nodes, part.graph.outputs) == (None, (), ("y",))


def test_nobody_asks_where_values_may_not_decide():
    stage = first_stage(load(by_rate()))
    part = specialize(stage, {"x": TensorType((2, 3), X.dtype), "sr": TensorType((), RATE.dtype)}, {})
    assert not part.need_values and part.rest is not None and part.rest.value_inputs == {"c"}


@pytest.mark.parametrize(
    ("array", "nodes"),
    [
        (np.float32(16000), []),
        (np.zeros(9, np.int64), [node("ReduceMax", "sr0", "sr", keepdims=0)]),
    ],
)
def test_floats_and_long_tensors_decide_nothing(array, nodes):
    name = "sr0" if nodes else "sr"
    proto = by_rate(array.shape, array.dtype)
    proto.graph.input[1].name = name
    proto.graph.node.insert(0, nodes[0]) if nodes else None
    part = first(proto, x=X, **{name: np.asarray(array)})
    assert not part.need_values and part.rest is not None


def test_what_depends_on_a_float_too_is_computed():
    nodes = [
        node("ReduceSum", "x", "s", keepdims=0),
        node("Cast", "s", "si", to=7),
        node("Less", "sr si", "c"),
        choice("c"),
        node("Exp", "a", "y"),
    ]
    part = first(model(nodes, [tensor("x", [2, 3]), tensor("sr", [], np.int64)]), x=X, sr=RATE)
    assert not part.need_values and part.rest is not None


def test_a_shape_asks_for_what_it_is_made_of():
    nodes = [node("Concat", "n minus", "s", axis=0), node("Reshape", "x s", "y")]
    proto = model(nodes, [tensor("x", [2, 3]), tensor("n", [1], np.int64)], minus=np.array([-1]))
    assert first(proto, x=X, n=np.array([3])).deciding == {"n"}
    assert first(proto, ["n"], x=X, n=np.array([3])).graph.types["y"].shape == (3, 2)


def test_a_condition_inside_a_branch_asks_too():
    """yes ? (sr = k ? relu : neg) : exp"""
    inner = graph([node("Equal", "sr k", "c"), choice("c")], outputs="a")
    outer = node("If", "yes", "z", then_branch=inner, else_branch=graph([node("Exp", "x", "e")], outputs="e"))
    inputs = [tensor("x", [2, 3]), tensor("sr", [], np.int64), tensor("yes", [], bool)]
    proto = model([outer, node("Abs", "z", "y")], inputs, k=np.array(16000))
    arrays = {"x": X, "sr": RATE, "yes": np.array(True)}
    assert first(proto, **arrays).need_values == {"yes"}
    assert first(proto, ["yes"], **arrays).need_values == {"sr"}
    assert first(proto, ["yes", "sr"], **arrays).rest is None


def test_what_chance_decides_is_no_value():
    nodes = [
        node("RandomNormalLike", "sr", "r", dtype=1),
        node("Greater", "r zero", "c"),
        choice("c"),
        node("Exp", "a", "y"),
    ]
    proto = model(nodes, [tensor("x", [2, 3]), tensor("sr", [], np.int64)], zero=np.float32(0))
    assert not first(proto, x=X, sr=RATE).need_values
