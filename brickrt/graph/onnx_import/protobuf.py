"""Translates ONNX's protobuf messages to Python values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper

from brickrt.graph.builder import OnnxNode
from brickrt.graph.errors import ModelError
from brickrt.graph.onnx_import.external_data import sparse_array, tensor_array
from brickrt.graph.onnx_import.tensor_info import TensorInfo as TensorInfo
from brickrt.graph.time_budget import check_time

OPEN = ("", "?", "-1", "None")
"""What exporters write for a dimension without a name: two of them may have different extents."""


def standard_domain(domain: str) -> str:
    """A domain's name; the standard one is ''."""
    return "" if domain == "ai.onnx" else domain


def bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The bodies of a node."""
    return [g for a in node.attribute for g in (*([a.g] if a.HasField("g") else []), *a.graphs)]


def outer_names(graph: onnx.GraphProto) -> list[str]:
    """Names of tensors that a subgraph reads but does not define."""
    defined = {v.name for v in (*graph.input, *graph.initializer)} | {s.values.name for s in graph.sparse_initializer}
    needed: list[str] = []
    for node in graph.node:
        inner = [name for body in bodies(node) for name in outer_names(body)]
        needed += [name for name in (*node.input, *inner) if name and name not in defined]
        defined.update(node.output)
    needed += [v.name for v in graph.output if v.name not in defined]
    return list(dict.fromkeys(needed))


def tensor_info(value: onnx.ValueInfoProto) -> TensorInfo:
    """The type and shape that a model declares for a tensor."""
    if not value.type.HasField("tensor_type"):
        return TensorInfo(None, None)
    tensor = value.type.tensor_type
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type) if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return TensorInfo(dtype, None)
    return TensorInfo(dtype, tuple(_dim(d) for d in tensor.shape.dim))


def _dim(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None  # -1 is how some exporters write an open dimension
    return dim.dim_param if dim.dim_param not in OPEN else None


def attribute_value(attribute: AttributeProto) -> Any:
    """The value of an attribute: tensors as arrays, strings decoded, subgraphs and types as they are."""
    if attribute.ref_attr_name:
        raise ModelError(
            f"attribute '{attribute.name}' refers to one of a function, outside any: export the model again"
        )
    value = helper.get_attribute_value(attribute)
    match attribute.type:
        case AttributeProto.STRING:
            return value.decode("utf-8", "replace")
        case AttributeProto.STRINGS:
            return [s.decode("utf-8", "replace") for s in value]
        case AttributeProto.TENSOR:
            return tensor_array(value, None)
        case AttributeProto.TENSORS:
            return [tensor_array(t, None) for t in value]
        case AttributeProto.SPARSE_TENSOR:
            return sparse_array(value, None)
        case AttributeProto.FLOATS | AttributeProto.INTS:
            return list(value)
        case _:
            return value


def constant_value(node: onnx.NodeProto) -> np.ndarray:
    """The array of a Constant node, whichever attribute holds it."""
    if len(node.attribute) != 1:
        raise ModelError(
            f"Constant node '{node.name}' has {len(node.attribute)} values, not one: export the model again"
        )
    attribute = node.attribute[0]
    value = attribute_value(attribute)
    match attribute.name:
        case "value_float" | "value_floats":
            return np.asarray(value, np.float32)
        case "value_int" | "value_ints":
            return np.asarray(value, np.int64)
        case "value_string" | "value_strings":
            return np.asarray(value, object)
        case _:
            return value


def initializer_arrays(graph: onnx.GraphProto, folder: Path | None = None) -> dict[str, np.ndarray]:
    """A graph's initializers by name; `folder` is where external data lies."""
    dense = {t.name: tensor_array(t, folder) for t in graph.initializer}
    return dense | {s.values.name: sparse_array(s, folder) for s in graph.sparse_initializer}


def graph_parts(
    graph: onnx.GraphProto, opsets: Mapping[str, int], taken: Iterable[str] = ()
) -> tuple[tuple[OnnxNode, ...], dict[str, np.ndarray]]:
    """The nodes of a graph, under names not in `taken`, and its constants: initializers and Constant nodes."""
    constants = initializer_arrays(graph)
    nodes, names = [], set(taken)
    for k, proto in enumerate(graph.node):
        if proto.op_type == "Constant" and standard_domain(proto.domain) == "":
            constants[proto.output[0]] = constant_value(proto)
        else:
            check_time(f"reading {proto.op_type} node", proto.name)
            nodes.append(onnx_node(proto, opsets, _unique(proto.name or f"{proto.op_type}_{k}", names)))
    return tuple(nodes), constants


def onnx_node(proto: onnx.NodeProto, opsets: Mapping[str, int], name: str) -> OnnxNode:
    """A node of the model from its message, under a name that is unique."""
    domain = standard_domain(proto.domain)
    attrs = {a.name: attribute_value(a) for a in proto.attribute}
    return OnnxNode(name, proto.op_type, domain, opsets[domain], tuple(proto.input), tuple(proto.output), attrs, proto)


def _unique(name: str, taken: set[str]) -> str:
    unique, k = name, 1
    while unique in taken:
        unique, k = f"{name}_{k}", k + 1
    taken.add(unique)
    return unique
