"""Small valid models to start from: ONNX's own node tests, and a few with what these lack."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
from onnx import helper
from onnx.backend.test.case.node import collect_testcases

from tests.support.graphs.onnx_models import graph, model, node, tensor

MOST_BYTES = 20_000


@cache
def node_tests() -> tuple[onnx.ModelProto, ...]:
    """The small models of ONNX's node tests, always in the same order."""
    models = [case.model for case in collect_testcases("") if case.model is not None]
    return tuple(m for m in models if m.ByteSize() < MOST_BYTES)


def own_models() -> list[onnx.ModelProto]:
    """Models of several nodes, with weights, sparse weights, a branch, a loop and a local function."""
    return [_convolutions(), _branch(), _loop(), _with_function(), _sparse(), _shapes()]


def base_model(k: int) -> onnx.ModelProto:
    """Model number `k`, of as many as wanted: one in four is our own."""
    if k % 4 == 0:
        own = own_models()
        return own[k // 4 % len(own)]
    models = node_tests()
    return models[k * 7919 % len(models)]


def _convolutions() -> onnx.ModelProto:
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1], group=1),
        node("Relu", "c", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("ConvTranspose", "p v", "u", strides=[2, 2]),
        node("LRN", "u", "n", size=3),
        node("Concat", "n r", "y", axis=1),
    ]
    ones = {"w": np.ones((4, 3, 3, 3), np.float32), "b": np.ones(4, np.float32), "v": np.ones((4, 4, 2, 2), np.float32)}
    return model(nodes, [tensor("x", ["N", 3, 8, 8])], **ones)


def _branch() -> onnx.ModelProto:
    one, two = (graph([node(op, "x", "t")], outputs="t") for op in ("Relu", "Neg"))
    nodes = [node("If", "c", "z", then_branch=one, else_branch=two), node("Softmax", "z", "y", axis=-1)]
    return model(nodes, [tensor("x", [2, 3]), tensor("c", [], bool)])


def _loop() -> onnx.ModelProto:
    ends = [tensor("i", [], np.int64), tensor("going", [], bool), tensor("s", [2])]
    body = graph([node("Add", "s x", "s2"), node("Identity", "going", "go2")], ends, "go2 s2 s2")
    nodes = [node("Loop", "n _ x", "last all", body=body), node("GatherND", "all k", "y", batch_dims=0)]
    return model(nodes, [tensor("x", [2])], n=np.int64(3), k=np.zeros((1, 1), np.int64))


def _with_function() -> onnx.ModelProto:
    proto = model([helper.make_node("Twice", ["x"], ["y"], domain="own")], [tensor("x", [2, 3])])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    body = [node("Add", "a a", "t"), node("Mul", "t a", "b")]
    proto.functions.append(helper.make_function("own", "Twice", ["a"], ["b"], body, imports))
    proto.opset_import.append(imports[1])
    return proto


def _sparse() -> onnx.ModelProto:
    values = helper.make_tensor("w", onnx.TensorProto.FLOAT, [2], [1.0, 2.0])
    indices = helper.make_tensor("w_indices", onnx.TensorProto.INT64, [2], [0, 3])
    proto = model([node("MatMul", "x w", "y")], [tensor("x", [2, 2])])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2, 2]))
    return proto


def _shapes() -> onnx.ModelProto:
    nodes = [
        node("Shape", "x", "s"),
        node("ConstantOfShape", "s", "f"),
        node("Pad", "f pads", "q"),
        node("Expand", "q wide", "e"),
        node("Reshape", "e flat", "r"),
        node("TopK", "r k", "top where", axis=0),
        node("Add", "top top", "y"),
    ]
    given = {"pads": [0, 1, 0, 1], "wide": [1, 2, 1], "flat": [-1], "k": [2]}
    return model(nodes, [tensor("x", [2, 3])], **{name: np.array(v, np.int64) for name, v in given.items()})
