"""Inlines the chosen branch of an If, and the body of an operator that ONNX defines as a function of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import checker, defs, helper

import brickrt.graph.contrib  # noqa: F401  (registers the definitions)
from brickrt.graph.builder import OnnxNode, builder_for
from brickrt.graph.contrib.body import OPSET, body_of
from brickrt.graph.errors import ModelError
from brickrt.graph.onnx_import.check_attributes import check_attributes
from brickrt.graph.onnx_import.protobuf import constant_value, initializer_arrays, onnx_node
from brickrt.ops.types import TensorType

Fresh = Callable[[str], str]
"""Gives a name that nobody has yet, from a hint."""

Splice = tuple[list[OnnxNode], dict[str, np.ndarray]]
"""Nodes and constants, under names that are unique in the whole model."""

SPECIAL = frozenset(("Identity", "Shape", "Size", "If", "Constant", "NegativeLogLikelihoodLoss"))
"""Operators that need no builder; the last is a function whose nodes have some."""


def branch(node: OnnxNode, taken: bool, opsets: Mapping[str, int], fresh: Fresh) -> Splice:
    """The nodes of the branch that an If takes, writing the outputs of the If."""
    graph = node.attrs["then_branch" if taken else "else_branch"]
    defined = [*initializer_arrays(graph), *(name for n in graph.node for name in n.output if name)]
    names = {name: fresh(name) for name in defined}
    constants = {names[name]: array for name, array in initializer_arrays(graph).items()}
    results = [
        helper.make_node("Identity", [names.get(inner.name, inner.name)], [outer])
        for inner, outer in zip(graph.output, node.outputs)
        if outer
    ]
    protos = [*(_renamed(n, names) for n in graph.node), *results]  # an outer name may be an inner one too
    return _splice(protos, {}, constants, opsets, fresh)


def function_body(node: OnnxNode, types: Sequence[TensorType | None]) -> onnx.FunctionProto | None:
    """The function that ONNX defines a node as, if all of its nodes have builders; `types` are those of its inputs."""
    schema: Any = defs.get_schema(node.op_type, node.version, node.domain)
    if schema.has_context_dependent_function:
        protos = [
            helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(t.dtype), t.shape) if t else onnx.TypeProto()
            for t in types
        ]
        data = schema.get_context_dependent_function(
            node.proto.SerializeToString(), [t.SerializeToString() for t in protos]
        )
        body = onnx.FunctionProto.FromString(data)
    elif schema.has_function:
        body = schema.function_body
    else:
        return None
    return body if all(_buildable(n) for n in body.node) else None


def contributed_body(node: OnnxNode, types: Sequence[TensorType | None]) -> onnx.FunctionProto:
    """The function that a contributed node stands for, with inputs of these types; its nodes may run on the host.

    Raises ValueError where the node makes no sense, also to ONNX's checker, which knows the types of attributes.
    """
    body = body_of(node.proto, types)
    for inner in body.node:
        try:
            check_attributes(inner)
            checker.check_node(inner, _CONTEXT)
        except (ModelError, checker.ValidationError) as e:
            raise ValueError(str(e).partition("\n")[0]) from e
    return body


def _checker_context() -> Any:
    context = checker.C.CheckerContext()
    context.ir_version, context.opset_imports = 10, {"": OPSET}
    return context


_CONTEXT = _checker_context()


def expand(node: OnnxNode, body: onnx.FunctionProto, opsets: Mapping[str, int], fresh: Fresh) -> Splice:
    """The nodes of a function's body, reading the inputs of `node` and writing its outputs.

    Raises ValueError where the body writes too few.
    """
    written = {*body.input, *(name for n in body.node for name in n.output)}
    missing = [outer for inner, outer in zip(body.output, node.outputs) if outer and inner not in written]
    if missing or len(node.outputs) > len(body.output):
        raise ValueError(f"ONNX's definition of it does not compute {missing or list(node.outputs)} for these inputs")
    outer = dict(zip(body.output, node.outputs)) | dict.fromkeys(body.input, "") | dict(zip(body.input, node.inputs))
    names = {name: fresh(name) for n in body.node for name in n.output if name}
    names |= {name: target for name, target in outer.items() if target or name in body.input}
    versions = {**opsets, **{o.domain: o.version for o in body.opset_import}}
    protos = [_with_attributes(n, node, body) for n in body.node]
    return _splice(protos, names, {}, versions, fresh)


def _buildable(proto: onnx.NodeProto) -> bool:
    probe = OnnxNode("", proto.op_type, proto.domain, 0, (), (), {}, proto)
    return proto.op_type in SPECIAL or builder_for(probe) is not None


def _splice(
    protos: Sequence[onnx.NodeProto],
    names: Mapping[str, str],
    constants: dict[str, np.ndarray],
    opsets: Mapping[str, int],
    fresh: Fresh,
) -> Splice:
    nodes = []
    for proto in protos:
        renamed = _renamed(proto, names)
        if proto.op_type == "Constant" and not proto.domain:
            constants[renamed.output[0]] = constant_value(renamed)
        else:
            nodes.append(onnx_node(renamed, opsets, fresh(proto.name or proto.op_type)))
    return nodes, constants


def _renamed(proto: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """A copy of the node with tensors renamed, also where its subgraphs capture them."""
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    copy.input[:] = [names.get(name, name) for name in proto.input]
    copy.output[:] = [names.get(name, name) for name in proto.output]
    for attribute in copy.attribute:
        if attribute.HasField("g"):
            _rename_captured(attribute.g, names)
    return copy


def _rename_captured(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    own = {v.name for v in (*graph.input, *graph.initializer)} | {name for n in graph.node for name in n.output}
    outer = {name: new for name, new in names.items() if name not in own}
    for k, node in enumerate(list(graph.node)):
        graph.node[k].CopyFrom(_renamed(node, outer))
    for output in graph.output:
        output.name = outer.get(output.name, output.name)


def _with_attributes(proto: onnx.NodeProto, caller: OnnxNode, body: onnx.FunctionProto) -> onnx.NodeProto:
    """A copy of the node with references to attributes of its function replaced by what the caller gives."""
    if not any(a.ref_attr_name for a in proto.attribute):
        return proto
    given = {a.name: a for a in caller.proto.attribute}
    schema = defs.get_schema(caller.op_type, caller.version, caller.domain)
    defaults = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.type}
    values = defaults | {a.name: a for a in body.attribute_proto} | given
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    del copy.attribute[:]
    for attribute in proto.attribute:
        source = values.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if source is not None:
            new = copy.attribute.add()
            new.CopyFrom(source)
            new.name = attribute.name
    return copy
