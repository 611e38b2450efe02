"""If: a branch that is known is part of the graph, one that is not waits for its condition."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.stages import first_stage
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.by_definition import run_model, specialize_for
from tests.support.graphs.onnx_models import by_onnxruntime, graph, model, node, tensor

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)


def choice(condition: str = "c") -> onnx.NodeProto:
    """c ? relu(x) · w : x, with names that both branches use"""
    then = graph([node("Relu", "x", "t"), node("Mul", "t w", "u")], outputs="u", w=np.float32([1, 2, 3]))
    other = graph([node("Identity", "x", "u")], outputs="u")
    return node("If", condition, "a", then_branch=then, else_branch=other, name="choice")


def check(proto: onnx.ModelProto, **arrays: np.ndarray) -> None:
    expected, actual = by_onnxruntime(proto, arrays), run_model(load(proto), arrays)
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, 1e-6)


@pytest.mark.parametrize("taken", [True, False])
def test_constant_condition_takes_its_branch(taken):
    proto = model([choice(), node("Neg", "a", "y")], [tensor("x", [2, 3])], c=np.array(taken))
    part = specialize_for(first_stage(load(proto)), {"x": X})
    assert (part.rest, part.host_nodes, len(part.graph.nodes)) == (None, (), 1)
    check(proto, x=X)


def test_a_branch_may_name_its_tensors_like_those_outside():
    same = graph([node("Exp", "x", "y"), node("Neg", "y", "z")], outputs="z")
    proto = model([node("If", "c", "y", then_branch=same, else_branch=same)], [tensor("x", [2, 3])], c=np.array(True))
    np.testing.assert_allclose(run_model(load(proto), {"x": X})["y"], -np.exp(X), 1e-6)


def test_condition_that_is_an_input_is_asked_for():
    proto = model([choice(), node("Neg", "a", "y")], [tensor("x", [2, 3]), tensor("c", [], bool)])
    for taken in (True, False):
        check(proto, x=X, c=np.array(taken))


def test_condition_that_is_computed_splits_the_model():
    nodes = [
        node("ReduceSum", "x", "s", keepdims=0),
        node("Greater", "s zero", "c"),
        node("Exp", "x", "e"),
        choice(),
        node("Add", "a e", "y"),
    ]
    proto = model(nodes, [tensor("x", [2, 3])], zero=np.float32(0))
    part = specialize_for(first_stage(load(proto)), {"x": X})
    assert set(part.graph.outputs) == {"c", "e"}
    assert part.rest is not None
    assert part.rest.value_inputs == {"c"}
    for x in (X, -X, abs(X)):
        check(proto, x=x)


def test_condition_that_the_host_computes():
    nodes = [
        node("Unique", "x", "q"),
        node("Size", "q", "n"),
        node("Greater", "n five", "c"),
        choice(),
        node("Neg", "a", "y"),
    ]
    proto = model(nodes, [tensor("x", [2, 3])], five=np.array(5))
    check(proto, x=X)
    check(proto, x=np.ones_like(X))


def test_the_same_branch_twice_does_not_clash():
    again = choice()
    again.output[0], again.name = "b", "again"
    proto = model([choice(), again, node("Add", "a b", "y")], [tensor("x", [2, 3])], c=np.array(True))
    check(proto, x=X)


@pytest.mark.parametrize("taken", [True, False])
def test_branch_whose_result_has_the_name_that_it_is_given_outside(taken):
    names = "t w", "a"
    then = graph([node("Relu", "x", "t"), node("Mul", *names)], outputs="a", w=np.float32([1, 2, 3]))
    chosen = node("If", "c", "a", then_branch=then, else_branch=graph([node("Identity", "x", "a")], outputs="a"))
    source = load(model([chosen, node("Neg", "a", "y")], [tensor("x", [2, 3])], c=np.array(taken)))
    expected = -np.maximum(X, 0) * np.float32([1, 2, 3]) if taken else -X
    np.testing.assert_array_equal(run_model(source, {"x": X})["y"], expected)


def test_branch_within_a_branch():
    inner = choice("d")
    inner.output[0] = "v"
    outer = node(
        "If", "c", "z", then_branch=graph([inner], outputs="v"), else_branch=graph([node("Neg", "x", "n")], outputs="n")
    )
    inputs = [tensor("x", [2, 3]), tensor("c", [], bool), tensor("d", [], bool)]
    proto = model([outer, node("Neg", "z", "y")], inputs)
    for c, d in ((True, True), (True, False), (False, True)):
        check(proto, x=X, c=np.array(c), d=np.array(d))


def test_branch_that_captures_a_spliced_name():
    """The inner If captures `t`, which the outer branch computes and which is renamed when that is spliced."""
    inner = node(
        "If",
        "d",
        "v",
        then_branch=graph([node("Neg", "t", "p")], outputs="p"),
        else_branch=graph([node("Exp", "t", "q")], outputs="q"),
    )
    then = graph([node("Relu", "x", "t"), inner], outputs="v")
    outer = node("If", "c", "y", then_branch=then, else_branch=graph([node("Neg", "x", "n")], outputs="n"))
    proto = model([outer], [tensor("x", [2, 3]), tensor("c", [], bool), tensor("d", [], bool)])
    for d in (True, False):
        check(proto, x=X, c=np.array(True), d=np.array(d))


def test_branch_that_gives_a_constant():
    then = graph([node("Constant", "", "k", value_floats=[1.0, 2.0])], outputs="k")
    proto = model([node("If", "c", "y", then_branch=then, else_branch=then)], [tensor("c", [], bool)])
    check(proto, c=np.array(True))


def test_loop_runs_on_the_host():
    body = graph(
        [node("Add", "s x", "t"), node("Identity", "c", "go")],
        [tensor("i", [], np.int64), tensor("c", [], bool), tensor("s", [2, 3])],
        [tensor("go", [], bool), tensor("t", [2, 3])],
        name="body",
    )
    nodes = [node("Relu", "x0", "x"), node("Loop", "n _ x", "l", body=body), node("Neg", "l", "y")]
    proto = model(nodes, [tensor("x0", [2, 3]), tensor("n", [], np.int64)])
    part = specialize_for(first_stage(load(proto)), {"x0": X, "n": np.array(3)})
    assert [n.op_type for n in part.host_nodes] == ["Loop"]
    check(proto, x0=X, n=np.array(3))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("more", [{}, {"ignore_index": 2}, {"weights": True}, {"weights": True, "ignore_index": -1}])
@pytest.mark.parametrize("shape", [(6, 5), (2, 5, 3, 4)])
def test_a_loss_is_kernels_but_for_what_it_gathers(shape: tuple[int, ...], more: dict, reduction: str):
    """The function by which ONNX defines it has another function inside."""
    rng = np.random.default_rng(0)
    attrs = {name: value for name, value in more.items() if name != "weights"}
    labels = rng.integers(0, shape[1], (shape[0], *shape[2:]))
    labels.flat[1] = attrs.get("ignore_index", 0)
    names = "x labels w" if "weights" in more else "x labels"
    ends = [tensor("x", shape), tensor("labels", labels.shape, np.int64)]
    weights = {"w": np.float32([1, 2, 0.5, 3, 4])} if "weights" in more else {}
    nodes = [node("SoftmaxCrossEntropyLoss", names, "y p", reduction=reduction, **attrs)]
    outputs = [tensor("y", None), tensor("p", None)]
    proto = model(nodes, ends, outputs, 13, **weights)
    feeds = {"x": rng.standard_normal(shape).astype(np.float32), "labels": labels}
    runtime = Runtime(proto, device="reference")
    found, wanted = runtime.execute(feeds), by_onnxruntime(proto, feeds)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], 1e-5, 1e-6)
    assert all("Gather" in name for name in runtime.fallback)
