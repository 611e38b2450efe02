"""Checks a model's messages before anything else, native code included, reads them: text, types, extents, nesting,
calls, and room for what they stand for.

ONNX's checker comes later: it looks at nodes and edges, but takes element types that do not exist, and calls itself for
each function and each sub-graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import onnx
from google.protobuf.message import Message
from onnx import TensorProto, helper

from brickrt.graph.builder import ADDRESSABLE_BYTES
from brickrt.graph.errors import ModelError
from brickrt.graph.onnx_import.check_attributes import check_attributes
from brickrt.graph.onnx_import.protobuf import bodies, standard_domain
from brickrt.graph.room import require_bytes
from brickrt.graph.time_budget import check_time
from brickrt.ops.types import MOST_DIMENSIONS, TensorType

MOST_NESTED = 24
"""Sub-graphs and types inside one another."""

MOST_NODES = 1 << 20
"""Nodes of local functions once they are inlined, in a model that is not larger itself."""

NODE_BYTES = 1 << 8
"""A node of more bytes counts as several."""

ELEMENT_TYPES = frozenset(helper.get_all_tensor_dtypes()) - {TensorProto.UNDEFINED}
_NESTING = frozenset((onnx.GraphProto.DESCRIPTOR.full_name, onnx.TypeProto.DESCRIPTOR.full_name))


def check_messages(model: onnx.ModelProto, label: str) -> bool:
    """Whether tensors lie in files. Raises ModelError for text that is not UTF-8, unknown element types, and what is
    too deep or too much, and BrickError for tensors in files and sparse ones that are together larger than the memory
    available."""
    kinds, in_files = list[TensorType](), False
    try:
        for message in messages_below(model):
            _CHECKS.get(message.DESCRIPTOR.full_name, _nothing)(message)
            if expanded := _expanded(message):
                kinds, in_files = kinds + expanded, in_files or isinstance(message, TensorProto)
        named = f"{', '.join(map(str, kinds[:4]))}{', …' * (len(kinds) > 4)}"
        require_bytes(sum(kind.nbytes for kind in kinds), f"{label}: what lies in files or is sparse, {named}")
        _check_functions(model)
    except ModelError as e:
        raise ModelError(f"{label}: {e}: export the model again") from e
    return in_files


def _nothing(message: Any) -> None:
    pass


def _expanded(message: Any) -> list[TensorType]:
    """The type of a tensor that takes more memory than its message: one in a file, or a sparse one."""
    if isinstance(message, onnx.SparseTensorProto):
        return [TensorType(tuple(message.dims), helper.tensor_dtype_to_np_dtype(message.values.data_type))]
    if isinstance(message, TensorProto) and message.data_location == TensorProto.EXTERNAL:
        return [TensorType(tuple(message.dims), helper.tensor_dtype_to_np_dtype(message.data_type))]
    return []


def messages_below(message: Message) -> Iterator[Message]:
    """A message and all inside it. Raises ModelError where they are nested too deeply."""
    left = [(message, 0)]
    while left:
        message, depth = left.pop()
        descriptor = message.DESCRIPTOR
        depth += descriptor.full_name in _NESTING
        if depth > MOST_NESTED:
            raise ModelError(f"more than {MOST_NESTED} sub-graphs or types are nested inside one another")
        check_time("reading a", descriptor.name)
        _check_text(message)
        yield message
        inside: list[Message] = []
        for name, repeated in _parts(descriptor):
            if repeated:
                inside += getattr(message, name)
            elif message.HasField(name):
                inside.append(getattr(message, name))
        left += [(one, depth) for one in reversed(inside)]


@cache
def _parts(descriptor: Any) -> tuple[tuple[str, bool], ...]:
    """The fields of a kind of message that hold messages, and whether each holds many."""
    return tuple((f.name, bool(f.is_repeated)) for f in descriptor.fields if f.type == f.TYPE_MESSAGE)


@cache
def _texts(descriptor: Any) -> tuple[tuple[str, bool], ...]:
    """The fields of a kind of message that hold text, and whether each holds many."""
    return tuple((f.name, bool(f.is_repeated)) for f in descriptor.fields if f.type == f.TYPE_STRING)


def _check_text(message: Message) -> None:
    for name, repeated in _texts(message.DESCRIPTOR):
        text = getattr(message, name)  # text that is not UTF-8 comes as bytes
        if any(isinstance(one, bytes) for one in text) if repeated else isinstance(text, bytes):
            raise ModelError(f"field '{name}' of a {message.DESCRIPTOR.name} is no UTF-8 text")


def _check_tensor(tensor: TensorProto) -> None:
    what = f"tensor '{tensor.name}'"
    _check_element_type(tensor.data_type, what)
    _check_dimensions(tensor.dims, what)
    if tensor.HasField("segment"):
        raise ModelError(f"{what} is stored in segments, which nothing writes")


def _check_sparse(sparse: onnx.SparseTensorProto) -> None:
    _check_element_type(sparse.values.data_type, f"sparse tensor '{sparse.values.name}'")
    _check_dimensions(sparse.dims, f"sparse tensor '{sparse.values.name}'")


def _check_value(value: onnx.ValueInfoProto) -> None:
    _check_type(value.type, f"tensor '{value.name}'")


def _check_type(kind: onnx.TypeProto, what: str) -> None:
    for tensor in (kind.tensor_type, kind.sparse_tensor_type):
        if tensor.elem_type:
            _check_element_type(tensor.elem_type, what)
        if len(tensor.shape.dim) > MOST_DIMENSIONS:
            raise ModelError(f"{what} has {len(tensor.shape.dim)} dimensions, more than {MOST_DIMENSIONS}")


def _check_element_type(number: int, what: str) -> None:
    if number not in ELEMENT_TYPES:
        raise ModelError(f"{what} has elements of type {number}, which does not exist in onnx {onnx.__version__}")


def _check_dimensions(dims: Iterable[int], what: str) -> None:
    extents = list(dims)
    if len(extents) > MOST_DIMENSIONS:
        raise ModelError(f"{what} has {len(extents)} dimensions, more than {MOST_DIMENSIONS}")
    if any(d < 0 for d in extents):
        raise ModelError(f"{what} has the extents {extents}, one of them negative")
    if math.prod(d for d in extents if d) > ADDRESSABLE_BYTES:
        raise ModelError(f"{what} has the extents {extents}, more than any memory holds")


def _check_node(node: onnx.NodeProto) -> None:
    if not standard_domain(node.domain):
        check_attributes(node)


_CHECKS = {
    onnx.NodeProto.DESCRIPTOR.full_name: _check_node,
    TensorProto.DESCRIPTOR.full_name: _check_tensor,
    onnx.SparseTensorProto.DESCRIPTOR.full_name: _check_sparse,
    onnx.ValueInfoProto.DESCRIPTOR.full_name: _check_value,
}


def _check_functions(model: onnx.ModelProto) -> None:
    """Raises ModelError for functions of one name, that call themselves, or that grow beyond bounds when inlined."""
    bodies = {(standard_domain(f.domain), f.name, f.overload): f.node for f in model.functions}
    if not bodies:
        return
    if len(bodies) < len(model.functions):
        raise ModelError("two of its functions have one name")
    sizes: dict[tuple[str, str, str], int] = {}
    for start in bodies:
        _measure(start, bodies, sizes)
    total = sum(sizes.get(called, 0) for called, _ in _calls(model.graph.node))
    if total > MOST_NODES and total > model.ByteSize() // NODE_BYTES:
        raise ModelError(f"its functions stand for {total} nodes of up to {NODE_BYTES} bytes, more than {MOST_NODES}")


def _measure(start: Any, bodies: dict[Any, Any], sizes: dict[Any, int]) -> None:
    """Fills in `sizes`, the nodes of each function once all in it is inlined, for `start` and what it calls."""
    open_calls, trail = [(start, list(_calls(bodies[start])))], {start}
    while open_calls:
        name, calls = open_calls[-1]
        missing = next((c for c, _ in calls if c in bodies and c not in sizes), None)
        if missing is None:
            sizes[name] = sum(sizes.get(c, weight) for c, weight in calls)
            trail.discard(name)
            open_calls.pop()
        elif missing in trail:
            raise ModelError(f"function '{missing[1]}' calls itself")
        else:
            trail.add(missing)
            open_calls.append((missing, list(_calls(bodies[missing]))))


def _calls(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[tuple[str, str, str], int]]:
    """What the nodes, also those of sub-graphs, call, and how many nodes each counts as itself."""
    for node in nodes:
        yield (standard_domain(node.domain), node.op_type, node.overload), 1 + node.ByteSize() // NODE_BYTES
        for graph in bodies(node):
            yield from _calls(graph.node)
