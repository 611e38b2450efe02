"""The Attention operator beside attention as older opsets write it out, and what has no form in brick operators."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from brickrt import Runtime
from brickrt.graph.errors import BrickError, Unsupported
from brickrt.ops.operators.move import Concat, Take
from tests.support.graphs.builders_harness import build, check, one_node, run_model

RNG = np.random.default_rng(3)


def data(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def model_of(nodes: list[onnx.NodeProto], shape: tuple[int, ...], mask: np.ndarray) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "qkv"]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "attention", inputs, [y], [numpy_helper.from_array(mask, "m")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    model.ir_version = 10
    return model


def test_is_planned_like_attention_that_is_written_out() -> None:
    """x · kᵀ / 4 + mask, softmax, · v: the same subgraphs."""
    shape, mask = (1, 4, 40, 16), data(1, 1, 40, 40)
    quarter = helper.make_node("Constant", [], ["f"], value_float=0.25)
    written = [
        helper.make_node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "t"], ["s"]),
        quarter,
        helper.make_node("Mul", ["s", "f"], ["u"]),
        helper.make_node("Add", ["u", "m"], ["w"]),
        helper.make_node("Softmax", ["w"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    feeds = {name: data(*shape) for name in "qkv"}
    ours = Runtime(model_of([helper.make_node("Attention", list("qkvm"), ["y"])], shape, mask))
    theirs = Runtime(model_of(written, shape, mask))
    a, e = ours.execute(feeds)["y"], theirs.execute(feeds)["y"]
    np.testing.assert_allclose(a, e, 1e-5, 1e-6)
    assert subgraphs(ours) == subgraphs(theirs)


def subgraphs(runtime: Runtime) -> list[list[str]]:
    """The operators of each subgraph of the only plan."""
    (plan,) = runtime.plan.plans
    return [[plan.graph.nodes[k].op.name for k in subgraph.nodes] for subgraph in plan.subgraphs]


def test_shared_keys_are_not_copied() -> None:
    model, feeds = one_node("Attention", 23, [data(1, 6, 5, 8), data(1, 2, 7, 8), data(1, 2, 7, 4)])
    b, _ = build(model, feeds, {})
    assert not any(isinstance(node.op, Take | Concat) for node in b.nodes)


@pytest.mark.parametrize("past", [0, 3])
def test_rows_without_a_key_are_zero(past: int) -> None:
    """A mask that only the run knows, with a row of which nothing is seen."""
    mask = np.ones((4, 5 + past), bool)
    mask[2] = False
    before = [data(1, 2, past, 8), data(1, 2, past, 8)] if past else []
    inputs = [data(1, 2, 4, 8), data(1, 2, 5, 8), data(1, 2, 5, 8), mask, *before]
    outputs = 3 if past else 1
    (y, *_) = check("Attention", 23, inputs, outputs, "reference", is_causal=1)
    assert not y[:, :, 2].any()
    assert y[:, :, 3].any()


def test_infinite_scores_of_masked_rows() -> None:
    """∞ - ∞ is no number, but a row without a key is zero all the same."""
    q = data(1, 1, 2, 4)
    q[0, 0, 0] = np.inf
    mask = np.array([[False] * 3, [True] * 3])
    with np.errstate(invalid="ignore"):
        check("Attention", 23, [q, abs(data(1, 1, 3, 4)), data(1, 1, 3, 4), mask], 1, "reference")


def test_softmax_of_fewer_bits_runs_on_the_host() -> None:
    model, feeds = one_node("Attention", 23, [data(1, 2, 4, 8)] * 3, softmax_precision=TensorProto.FLOAT16)
    with pytest.raises(Unsupported, match="fewer bits"):
        run_model(model, feeds)


@pytest.mark.parametrize(
    ("inputs", "settings", "words"),
    [
        ([data(1, 4, 8)] * 3, {"q_num_heads": 3, "kv_num_heads": 2}, "3 equal heads"),
        ([data(1, 3, 4, 8), data(1, 2, 4, 8), data(1, 2, 4, 8)], {}, "do not fit"),
        ([data(1, 2, 4, 8)] * 3 + [data(4, 5)], {}, "a mask for 5 keys"),
        ([data(1, 2, 4, 8)] * 4 + [data(1, 2, 1, 8)], {}, "must be given together"),
        ([data(1, 2, 4, 8)] * 3, {"left_window_size": -2}, "windows of -2"),
    ],
)
def test_what_does_not_fit(inputs: list, settings: dict, words: str) -> None:
    model, feeds = one_node("Attention", 25 if "left_window_size" in settings else 23, inputs, **settings)
    with pytest.raises((ValueError, BrickError), match=words):
        run_model(model, feeds)
