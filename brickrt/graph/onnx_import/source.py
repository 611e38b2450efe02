"""Imports a model: ONNX as it is, dimensions symbolic, weights as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import defs, helper, inliner

from brickrt.graph.allowance import allowing
from brickrt.graph.builder import OnnxNode
from brickrt.graph.contrib.body import CONTRIB, UNDER_STANDARD_NAMES
from brickrt.graph.errors import ModelError, last_resort
from brickrt.graph.onnx_import.check_messages import check_messages, messages_below
from brickrt.graph.onnx_import.check_model import check_graph, check_header
from brickrt.graph.onnx_import.converter import INLINE, converted
from brickrt.graph.onnx_import.element_types import element_types
from brickrt.graph.onnx_import.external_data import bytes_beside, embed_external_data
from brickrt.graph.onnx_import.node_order import sort_nodes
from brickrt.graph.onnx_import.protobuf import bodies, graph_parts, initializer_arrays, standard_domain, tensor_info
from brickrt.graph.onnx_import.tensor_info import TensorInfo
from brickrt.graph.onnx_import.upgrade_opset import upgraded
from brickrt.graph.time_budget import preparing
from brickrt.graph.uncollected import uncollected


@dataclass(frozen=True, eq=False)
class SourceGraph:
    """A valid ONNX model as it was imported.

    `optional` inputs have their default in `initializers`; `nodes` are in topological order; `light` is the model
    without its weights, `stored_bytes` the size of its file (of a message: of weights, nodes and functions) and of what
    it has in others.
    """

    name: str
    inputs: dict[str, TensorInfo]
    optional: dict[str, TensorInfo]
    outputs: dict[str, TensorInfo]
    initializers: dict[str, np.ndarray]
    nodes: tuple[OnnxNode, ...]
    opsets: dict[str, int]
    light: onnx.ModelProto
    stored_bytes: int

    def __repr__(self) -> str:
        nbytes = sum(array.nbytes for array in self.initializers.values())
        ends = f"inputs={len(self.inputs)}, outputs={len(self.outputs)}"
        return f"SourceGraph({self.name!r}, nodes={len(self.nodes)}, {ends}, constant_bytes={nbytes})"

    @property
    def open_sizes(self) -> bool:
        """Whether an extent of an input is open, beside the first, which is often the batch: then the model is likely
        to run at many sizes."""
        shapes = [info.shape for info in self.inputs.values() if info.shape is not None]
        return any(not isinstance(extent, int) for shape in shapes for extent in shape[1:])

    @cached_property
    def element_types(self) -> dict[str, np.dtype]:
        """Element types by tensor name, of those that can be told before the model runs."""
        infos = {**self.inputs, **self.optional}
        given = {name: info.dtype for name, info in infos.items() if info.dtype is not None}
        return element_types(self.nodes, given | {name: array.dtype for name, array in self.initializers.items()})


Model = str | Path | bytes | onnx.ModelProto
"""What can be imported: a path, bytes, or a message."""


def load(model: Model) -> SourceGraph:
    """Imports a model from its path, its bytes, or as a message (which stays as it is).

    Raises ModelError, one line, where it is no valid ONNX model of known operators.
    """
    with last_resort(lambda: f"loading {model if isinstance(model, (str, Path)) else 'the model'}"):
        proto, folder, label, size = _read(model)
        stored = size + bytes_beside(proto.graph.initializer, folder)
        with preparing(), uncollected(), allowing(stored):
            in_files = check_messages(proto, label)
            return _imported(proto, folder, label, stored, in_files)


def _imported(proto: onnx.ModelProto, folder: Path | None, label: str, stored: int, in_files: bool) -> SourceGraph:
    """The imported model, some of whose tensors may be `in_files` of the folder."""
    sort_nodes(proto.graph)
    proto = upgraded(proto, check_header(proto, label), label)
    try:
        if in_files:
            embed_external_data(_inner_tensors(proto), folder)
        constants = initializer_arrays(proto.graph, folder)
        light = _light(proto, label)
        opsets = check_header(light, label)
        check_graph(light, opsets, label)
        nodes, more = graph_parts(light.graph, opsets)
    except ModelError as e:
        raise e if str(e).startswith(label) else ModelError(f"{label}: {e}") from e
    constants |= more
    infos = {v.name: tensor_info(v) for v in proto.graph.input}
    return SourceGraph(
        name=proto.graph.name or label,
        inputs={name: info for name, info in infos.items() if name not in constants},
        optional={name: info for name, info in infos.items() if name in constants},
        outputs={v.name: tensor_info(v) for v in light.graph.output},
        initializers=constants,
        nodes=nodes,
        opsets=opsets,
        light=light,
        stored_bytes=stored,
    )


def _read(model: str | Path | bytes | onnx.ModelProto) -> tuple[onnx.ModelProto, Path | None, str, int]:
    """A copy of the model, its folder, what to call it in errors, and its bytes."""
    if isinstance(model, onnx.ModelProto):
        proto = onnx.ModelProto()
        proto.CopyFrom(model)
        return proto, None, f"model '{model.graph.name}'", _size(proto)
    if isinstance(model, bytes):
        return _parse(model, "model"), None, "model", len(model)
    if not isinstance(model, (str, Path)):
        raise ModelError(
            f"a model is a path, bytes or an onnx.ModelProto, not a {type(model).__name__}: give one of these"
        )
    path = Path(model)
    data = _file(path)
    return _parse(data, str(path)), path.parent, str(path), len(data)


def _size(proto: onnx.ModelProto) -> int:
    """The bytes of a message's weights, nodes and functions; `ByteSize` writes all of them, 0.2 s for 100 MB."""
    weights = sum(len(tensor.raw_data) or tensor.ByteSize() for tensor in proto.graph.initializer)
    return weights + sum(part.ByteSize() for part in (*proto.graph.node, *proto.functions))


def _file(path: Path) -> bytes:
    """The bytes of a model's file. Raises ModelError where it cannot be read."""
    if "\0" in str(path):
        raise ModelError(f"{str(path)!r}: no path has a NUL in it: check the path")
    try:
        if not path.exists():
            raise ModelError(f"{path}: no such file: check the path")
        if path.is_dir():
            raise ModelError(f"{path}: is a folder: give the .onnx file in it")
        if path.is_char_device():  # which may have no end
            raise ModelError(f"{path}: is a device: give an .onnx file")
        return path.read_bytes()
    except OSError as e:
        raise ModelError(f"{path}: cannot be read ({e.strerror}): check the path and its permissions") from e


def _parse(data: bytes, label: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as e:
        if label.endswith(".brick"):
            raise ModelError(f"{label}: is compiled, and this needs the model: give the .onnx file") from e
        raise ModelError(f"{label}: not an ONNX model, or cut off: copy or export it again") from e
    return proto


def _inner_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The tensors of attributes, sub-graphs and functions."""
    for part in (*model.graph.node, *model.functions):
        yield from (message for message in messages_below(part) if isinstance(message, onnx.TensorProto))


def _light(proto: onnx.ModelProto, label: str) -> onnx.ModelProto:
    """The model with its weights turned into inputs and its functions inlined, so that it is quick to check."""
    graph = proto.graph
    known = {v.name for v in graph.input}
    dense = [(t.name, t.data_type, t.dims) for t in graph.initializer]
    sparse = [(s.values.name, s.values.data_type, s.dims) for s in graph.sparse_initializer]
    graph.ClearField("initializer")
    graph.ClearField("sparse_initializer")
    stand_ins = [helper.make_tensor_value_info(*info) for info in (*dense, *sparse) if info[0] not in known]
    light = onnx.ModelProto()
    light.CopyFrom(proto)
    light.graph.input.extend(stand_ins)
    _standard_domains(light)
    if not light.functions:
        return light
    try:
        return inliner.inline_local_functions(light) if _one_opset(light) else converted(light, INLINE)
    except (RuntimeError, ModelError) as e:
        raise ModelError(f"{label}: the model's functions cannot be inlined ({e}): export without functions") from e


def _one_opset(model: onnx.ModelProto) -> bool:
    """Whether the functions have the opsets of the model, so that none need be converted."""
    opsets = {o.domain: o.version for o in model.opset_import}
    return all(opsets.get(o.domain, o.version) == o.version for f in model.functions for o in f.opset_import)


def _standard_domains(model: onnx.ModelProto) -> None:
    """Writes the standard domain as '' everywhere; 'ai.onnx' is its other name. What ONNX Runtime keeps in it, though
    the model's opset has no such operator, is a contributed one."""
    version = next((o.version for o in model.opset_import if not standard_domain(o.domain)), 0)
    for part in (model, *model.functions):
        opsets = {standard_domain(o.domain): o.version for o in part.opset_import}
        del part.opset_import[:]
        part.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in opsets.items())
    parts = [model.graph.node, *(f.node for f in model.functions)]
    while parts:
        for node in parts.pop():
            node.domain = standard_domain(node.domain)
            if not node.domain and node.op_type in UNDER_STANDARD_NAMES and not defs.has(node.op_type, version):
                node.domain = CONTRIB
            if node.domain == CONTRIB and not any(o.domain == CONTRIB for o in model.opset_import):
                model.opset_import.append(helper.make_opsetid(CONTRIB, 1))
            parts.extend(body.node for body in bodies(node))
