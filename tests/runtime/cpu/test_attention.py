"""Attention as one brick task per head and block of query rows: its scores stay in a worker's scratch."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from brickrt.runtime.session.runtime import Runtime


def attention(batch: int, heads: int, rows: int, keys: int, depth: int) -> onnx.ModelProto:
    """softmax(q k) v, with k of shape [batch, heads, depth, keys]."""
    shapes = {
        "q": [batch, heads, rows, depth],
        "k": [batch, heads, depth, keys],
        "v": [batch, heads, keys, depth],
        "y": [batch, heads, rows, depth],
    }
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "v"], ["y"]),
    ]
    ends = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    graph = helper.make_graph(nodes, "attention", [ends[n] for n in "qkv"], [ends["y"]])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def definition(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = np.float64(q) @ np.float64(k)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True) @ np.float64(v)


@pytest.mark.parametrize("strategy", ["auto", "layerwise", "padded", "memoized"])
@pytest.mark.parametrize("size", [(2, 6, 197, 197, 64), (1, 3, 131, 77, 40), (1, 1, 300, 5, 16)], ids=str)
def test_attention(size, strategy):
    model = attention(*size)
    rng = np.random.default_rng(0)
    shapes = [[d.dim_value for d in x.type.tensor_type.shape.dim] for x in model.graph.input]
    feeds = {n: rng.standard_normal(s).astype(np.float32) for n, s in zip("qkv", shapes, strict=True)}
    runtime = Runtime(model, device="cpu", strategy=strategy, threads=1)
    got = runtime.execute(feeds)["y"]
    np.testing.assert_allclose(got, definition(*feeds.values()), rtol=2e-4, atol=2e-5)
    for threads in (2, 3):
        other = Runtime(model, device="cpu", strategy=strategy, threads=threads)
        np.testing.assert_array_equal(other.execute(feeds)["y"], got)


def test_scores_of_a_vision_transformer_stay_in_scratch():
    model = attention(1, 6, 197, 197, 64)
    runtime = Runtime(model, device="cpu")
    runtime.prepare(
        {x.name: np.zeros([d.dim_value for d in x.type.tensor_type.shape.dim], np.float32) for x in model.graph.input}
    )
    plan = runtime.plan.programs[0].tasks.plan
    assert [len(s.nodes) for s in plan.subgraphs] == [3]
    assert plan.subgraphs[0].strategy == "padded"
