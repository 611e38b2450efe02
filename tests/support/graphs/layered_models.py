"""A small float32 network of the layers that quantization knows."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

CLASSES = 5


def layered_model(batch: int | str = "N", dtype: type = np.float32, opset: int = 17) -> onnx.ModelProto:
    """x → Conv → BatchNormalization → Relu → MaxPool → Conv → + → GlobalAveragePool → Flatten → Gemm → scores, with a
    residual addition around the second convolution. Nodes but the Gemm "head" have no names."""
    rng = np.random.default_rng(5)
    weights = {
        "w1": rng.standard_normal((8, 3, 3, 3)),
        "w2": rng.standard_normal((8, 8, 3, 3)) * 0.2,
        "w3": rng.standard_normal((8, CLASSES)),
        "b3": rng.standard_normal(CLASSES),
        **{name: rng.uniform(0.5, 1.5, 8) for name in ("gamma", "beta", "mean", "var")},
    }
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["c1"], pads=[1] * 4),
        node("BatchNormalization", ["c1", "gamma", "beta", "mean", "var"], ["n1"]),
        node("Relu", ["n1"], ["r1"]),
        node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p1", "w2"], ["c2"], pads=[1] * 4),
        node("Add", ["p1", "c2"], ["sum"]),
        node("GlobalAveragePool", ["sum"], ["mean_of"]),
        node("Flatten", ["mean_of"], ["flat"]),
        node("Gemm", ["flat", "w3", "b3"], ["scores"], name="head"),
    ]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ends = [
        helper.make_tensor_value_info("x", kind, (batch, 3, 8, 8)),
        helper.make_tensor_value_info("scores", kind, (batch, CLASSES)),
    ]
    constants = [numpy_helper.from_array(array.astype(dtype), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "layered", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def pictures(count: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Inputs of the network, smooth as pictures are."""
    rng = np.random.default_rng(seed)
    coarse = [rng.random((1, 3, 4, 4), np.float32) for _ in range(count)]
    return [{"x": array.repeat(2, 2).repeat(2, 3)} for array in coarse]


def kinds(model: onnx.ModelProto) -> dict[str, int]:
    """How many nodes of each operator a model has."""
    found = [node.op_type for node in model.graph.node]
    return {kind: found.count(kind) for kind in found}
