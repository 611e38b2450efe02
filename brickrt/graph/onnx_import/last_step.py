"""A last step that is joined to a model, so that what it reads need never be there whole."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import helper

from brickrt.graph.builder import OnnxNode
from brickrt.graph.errors import ModelError
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.graph.onnx_import.tensor_info import TensorInfo

OPSET = 13


def with_argmax(source: SourceGraph, axis: int) -> SourceGraph:
    """The model with the position of the greatest element along `axis` as its output, in place of the elements: uint8
    where the model says that the axis has at most 256, else int32. The axis stays, with the extent 1."""
    name, info = _only_output(source, "--argmax")
    shape = _known_shape(name, info, "--argmax")
    if not -len(shape) <= axis < len(shape):
        raise ModelError(f"--argmax {axis}: the output '{name}' has the axes 0 to {len(shape) - 1}: give one of these")
    count = shape[axis]
    kind = np.uint8 if isinstance(count, int) and count <= 256 else np.int32
    left = tuple(1 if k == axis % len(shape) else extent for k, extent in enumerate(shape))
    step = _node("ArgMax", (name,), f"{name} argmax", {"axis": axis % len(shape), "keepdims": 1})
    return _with_steps(source, name, TensorInfo(np.dtype(kind), left), [step], kind, {})


def with_threshold(source: SourceGraph, threshold: float) -> SourceGraph:
    """The model with 1 where its output's elements are greater than `threshold`, else 0, as uint8, as its output."""
    name, info = _only_output(source, "--threshold")
    shape = _known_shape(name, info, "--threshold")
    if math.isnan(threshold):
        raise ModelError(f"--threshold {threshold}: is no number: give one")
    dtype = source.element_types.get(name, info.dtype)
    if dtype is None or dtype.kind not in "fiu":
        raise ModelError(f"--threshold: the output '{name}' has no numbers to compare: leave it out")
    bound = f"{name} threshold"
    step = _node("Greater", (name, bound), f"{name} above", {})
    constants = {bound: np.asarray(threshold, dtype)}
    return _with_steps(source, name, TensorInfo(np.dtype(np.uint8), shape), [step], np.uint8, constants)


def _only_output(source: SourceGraph, option: str) -> tuple[str, TensorInfo]:
    if len(source.outputs) != 1:
        raise ModelError(f"{option}: the model has the outputs {', '.join(source.outputs)}: only one is taken")
    return next(iter(source.outputs.items()))


def _known_shape(name: str, info: TensorInfo, option: str) -> tuple[int | str | None, ...]:
    if info.shape is None:
        raise ModelError(f"{option}: the model does not say what rank the output '{name}' has: export it with shapes")
    return info.shape


def _with_steps(
    source: SourceGraph,
    name: str,
    info: TensorInfo,
    steps: list[OnnxNode],
    kind: type[np.generic],
    constants: dict[str, np.ndarray],
) -> SourceGraph:
    """The model with the steps and a cast behind its output, under the output's name: the nodes' own is another now."""
    inner = f"{name} before"
    steps = [replace(step, inputs=tuple(inner if n == name else n for n in step.inputs)) for step in steps]
    cast = _node("Cast", steps[-1].outputs, name, {"to": int(helper.np_dtype_to_tensor_dtype(np.dtype(kind)))})
    nodes = [
        replace(
            node,
            inputs=tuple(inner if n == name else n for n in node.inputs),
            outputs=tuple(inner if n == name else n for n in node.outputs),
        )
        for node in source.nodes
    ]
    if not any(inner in node.outputs for node in nodes):
        raise ModelError(f"the output '{name}' is an input or a weight: no step is joined to it")
    return replace(
        source, nodes=(*nodes, *steps, cast), outputs={name: info}, initializers={**source.initializers, **constants}
    )


def _node(op_type: str, inputs: tuple[str, ...], output: str, attrs: dict[str, Any]) -> OnnxNode:
    proto = helper.make_node(op_type, inputs, [output], name=f"joined {op_type}", **attrs)
    return OnnxNode(f"joined {op_type}", op_type, "", OPSET, tuple(inputs), (output,), dict(attrs), proto)
