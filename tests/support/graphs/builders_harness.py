"""Runs ONNX nodes through their builders and the NumPy definitions of the operators these emit, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

import brickrt.graph.builders  # noqa: F401  (registers the builders)
from brickrt.graph.builder import Builder, OnnxNode, builder_for
from brickrt.graph.errors import NeedValue, Unsupported
from brickrt.graph.interpret import run_nodes
from brickrt.graph.ir import Graph
from brickrt.graph.onnx_import.protobuf import graph_parts
from brickrt.ops.types import TensorType


def run_model(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], constants: Iterable[str] = ()
) -> list[np.ndarray]:
    """The model's outputs. `constants`, and inputs whose values a builder asks for, are known when it builds.

    Raises Unsupported as the builders do.
    """
    known = {name: feeds[name] for name in constants}
    while True:
        try:
            return _run(model, feeds, known)
        except NeedValue as need:
            missing = [name for name in need.names if name in feeds] or _index_like(feeds)
            if known.keys() >= set(missing):
                raise
            known |= {name: feeds[name] for name in missing}


def _index_like(feeds: Mapping[str, np.ndarray]) -> list[str]:
    """Inputs from which a model may compute shapes."""
    return [name for name, array in feeds.items() if array.dtype.kind in "iu" and array.ndim < 2]


def check(
    op_type: str,
    version: int,
    inputs: list[np.ndarray | None],
    outputs: int = 1,
    oracle: str = "onnxruntime",
    tolerance: float = 1e-5,
    **attrs: object,
) -> list[np.ndarray]:
    """Asserts that a node (None for an omitted input) gives what ONNX Runtime or onnx.reference does; returns that."""
    model, feeds = one_node(op_type, version, inputs, outputs, **attrs)
    if oracle == "onnxruntime":
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        expected = session.run(None, feeds)
    else:
        expected = ReferenceEvaluator(model).run(None, feeds)
    actual = run_model(model, feeds)
    assert_close(actual, expected, tolerance)
    return actual


def assert_close(actual: list[np.ndarray], expected: list[np.ndarray], tolerance: float) -> None:
    """Same types and shapes; floating point within an absolute and relative tolerance, everything else equal."""
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        e = np.asarray(e)
        assert (a.dtype, a.shape) == (e.dtype, e.shape)
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a.astype(np.float64), e.astype(np.float64), tolerance, tolerance)
        else:
            np.testing.assert_array_equal(a, e)


def one_node(
    op_type: str, version: int, inputs: list[np.ndarray | None], outputs: int = 1, **attrs: object
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one node, and what to feed it."""
    feeds = {f"in{k}": np.asarray(a) for k, a in enumerate(inputs) if a is not None}
    names = [f"in{k}" if a is not None else "" for k, a in enumerate(inputs)]
    node = helper.make_node(op_type, names, [f"out{k}" for k in range(outputs)], **attrs)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = helper.make_graph([node], op_type, infos, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8), feeds


def build(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], constants: Mapping[str, np.ndarray]
) -> tuple[Builder, list[str]]:
    """The builder after all nodes of the model, and the tensors that stand for its outputs."""
    opsets = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}
    nodes, initializers = graph_parts(model.graph, opsets)
    wanted = [v.name for v in model.graph.output]
    b = Builder(reserved=feeds, used=[*wanted, *(name for node in nodes for name in node.inputs)], cpu_operators=True)
    for name, array in feeds.items():
        b.types[name] = TensorType(array.shape, array.dtype)
    for name, array in (*initializers.items(), *constants.items()):
        b.bind(name, array)
    for node in nodes:
        _visit(b, node)
    return b, [b.resolve(name) for name in wanted]


def _visit(b: Builder, node: OnnxNode) -> None:
    function = builder_for(node)
    if function is None:
        raise Unsupported(f"{node.op_type} has no builder")
    b.current = node
    first = len(b.nodes)
    made = function(b, node)
    _fold(b, first)
    made = (made,) if isinstance(made, str) else made
    assert len(made) == len(node.outputs), f"{node.op_type} gives {len(made)} outputs"
    b.aliases |= {name: b.resolve(tensor) for name, tensor in zip(node.outputs, made, strict=True) if tensor}


def _fold(b: Builder, first: int) -> None:
    """Replaces the nodes from `first` on that read only constants by their results: models compute shapes so."""
    live = []
    for node in b.nodes[first:]:
        if all(name in b.constants for name in node.inputs):
            b.constants[node.output] = run_nodes([node], b.constants)[node.output]
        else:
            live.append(node)
    b.nodes[first:] = live


def _run(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], constants: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    b, outputs = build(model, feeds, constants)
    live = tuple(name for name in feeds if name not in b.constants)
    Graph(tuple(b.nodes), b.types, b.constants, live, tuple(outputs)).verify()
    values = run_nodes(b.nodes, {**b.constants, **{name: feeds[name] for name in live}})
    return [values[name] for name in outputs]
