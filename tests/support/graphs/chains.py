"""A small network."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def chain() -> onnx.ModelProto:
    """x → 3×3 → relu → 3×3"""
    rng = np.random.default_rng(0)
    shapes = {"w": (8, 3, 3, 3), "v": (8, 8, 3, 3)}
    constants = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name) for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "bend"),
        helper.make_node("Conv", ["b", "v"], ["y"], "second <&>", pads=[1, 1, 1, 1]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, c, 96, 96)) for n, c in (("x", 3), ("y", 8))]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
