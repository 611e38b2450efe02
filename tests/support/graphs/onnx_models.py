"""Small ONNX models for tests, and what they should give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from brickrt.graph.host.run_host_node import run_node
from brickrt.graph.onnx_import.protobuf import onnx_node
from tests.support.graphs.builders_harness import one_node

Dims = Sequence[int | str | None]


def node(op_type: str, inputs: str, outputs: str, **attrs: object) -> onnx.NodeProto:
    """A node from names separated by blanks; `_` is an omitted input or output."""
    names = [["" if name == "_" else name for name in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op_type, *names, **attrs)


def tensor(name: str, dims: Dims | None, dtype: type = np.float32) -> onnx.ValueInfoProto:
    """An input or output of a graph; `dims` None leaves its rank open."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dims)


def unknown(*names: str) -> list[onnx.ValueInfoProto]:
    """Outputs of which nothing but the name is told."""
    return [onnx.ValueInfoProto(name=name) for name in names]


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    outputs: Sequence[onnx.ValueInfoProto] | str = "y",
    name: str = "g",
    **initializers: np.ndarray,
) -> onnx.GraphProto:
    """An ONNX graph; keywords are its initializers."""
    infos = [tensor(n, None) for n in outputs.split()] if isinstance(outputs, str) else outputs
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in initializers.items()]
    return helper.make_graph(nodes, name, inputs, infos, tensors)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    outputs: Sequence[onnx.ValueInfoProto] | str = "y",
    opset: int = 17,
    **initializers: np.ndarray,
) -> onnx.ModelProto:
    """An ONNX model of one graph; keywords are its initializers."""
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph(nodes, inputs, outputs, **initializers), opset_imports=imports, ir_version=8)


def by_onnxruntime(proto: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What ONNX Runtime computes, by output name."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(inputs)), strict=True))


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


def compare_on_host(op_type: str, *inputs: np.ndarray | None, opset: int = 18, **attrs: object) -> np.ndarray:
    """The output of a node as the host computes it; asserts that ONNX Runtime gives the same."""
    model, feeds = one_node(op_type, opset, list(inputs), 1, **attrs)
    opsets = {"": opset}
    (actual,) = run_node(onnx_node(model.graph.node[0], opsets, "n"), opsets, feeds)
    (expected,) = by_onnxruntime(model, feeds).values()
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(actual, expected, 1e-6, 1e-6)
    return actual
