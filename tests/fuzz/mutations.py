"""Changes a model at random: in its messages, field by field, or in its bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import onnx
from google.protobuf.message import Message
from onnx import TensorProto, defs, helper

from tests.fuzz import damage, insertions
from tests.fuzz.rearrangements import constants, inside, joined, values

INTEGERS = (
    0,
    1,
    -1,
    2,
    3,
    5,
    8,
    17,
    33,
    64,
    -1000,
    1000,
    1 << 16,
    10**7,
    1 << 31,
    -(1 << 31),
    (1 << 63) - 1,
    -(1 << 63),
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e30, -1e30, float("inf"), float("-inf"), float("nan"), 1e-40)
TEXTS = ("", "x", "y", "Relu", "SAME_UPPER", "nearest", "sum", "ai.onnx", "a\0b", "ä", "../x", "é" * 40)
OPERATORS = tuple(sorted({s.name for s in defs.get_all_schemas() if s.domain == ""}))

Mutation = Callable[[random.Random, onnx.ModelProto], None]


def mutated(seed: int, proto: onnx.ModelProto, other: onnx.ModelProto | None = None) -> bytes:
    """The bytes of a changed copy of a model: a few changes, of which the seed decides. With an `other` model, some
    copies have that one behind them, or are put together anew otherwise."""
    rng = random.Random(seed)
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    if other is not None and rng.random() < 0.2:
        joined(rng, copy, other)
    if other is not None and rng.random() < 0.4:
        rng.choice((constants, constants, values, inside))(rng, copy)
    if other is not None and rng.random() < 0.5:
        rng.choice(_KINDS)(rng, copy)
    for _ in range(rng.choice((0, 1, 1, 2, 3) if other is not None else (1, 1, 1, 2, 3))):
        rng.choice(_MUTATIONS)(rng, copy)
    data = copy.SerializeToString()
    return _bytes_changed(rng, data) if rng.random() < 0.15 else data


def _bytes_changed(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed))
        changed[at] = rng.randrange(256)
    return bytes(changed[: rng.randint(1, len(changed))] if rng.random() < 0.2 else changed)


def _messages(message: Message) -> list[Any]:
    """A message and all below it."""
    found: list[Any] = [message]
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for below in value if _repeated(field) else [value]:
                found += _messages(below)
    return found


def _repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _all_of(proto: onnx.ModelProto, kind: type) -> list[Any]:
    return [message for message in _messages(proto.graph) if isinstance(message, kind)]


def _node(rng: random.Random, proto: onnx.ModelProto) -> onnx.NodeProto | None:
    nodes = _all_of(proto, onnx.NodeProto)
    return rng.choice(nodes) if nodes else None


def _scalar(rng: random.Random, field: Any) -> Any:
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice(FLOATS)
    if field.cpp_type == field.CPPTYPE_STRING:
        text = rng.choice(TEXTS)
        return text.encode("latin-1") if field.type == field.TYPE_BYTES else text
    if field.cpp_type == field.CPPTYPE_ENUM:
        return rng.choice([v.number for v in field.enum_type.values])
    bits = 31 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 63
    return max(min(rng.choice(INTEGERS), (1 << bits) - 1), 0 if "UINT" in str(field.cpp_type) else -(1 << bits))


def any_field(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Another value in any scalar field, or an entry more or less in a list."""
    message = rng.choice(_messages(proto))
    fields = [f for f in message.DESCRIPTOR.fields if f.type != f.TYPE_MESSAGE]
    if not fields:
        return
    present = [f for f, _ in message.ListFields() if f.type != f.TYPE_MESSAGE]
    field = rng.choice(present if present and rng.random() < 0.8 else fields)
    try:
        if not _repeated(field):
            setattr(message, field.name, _scalar(rng, field))
            return
        values = getattr(message, field.name)
        if values and rng.random() < 0.7:
            values[rng.randrange(len(values))] = _scalar(rng, field)
        elif values and rng.random() < 0.5:
            del values[rng.randrange(len(values))]
        else:
            values.append(_scalar(rng, field))
    except ValueError:  # protobuf itself refuses the value: the model stays as it is
        return


def attribute(rng: random.Random, proto: onnx.ModelProto) -> None:
    """An attribute of another value, of another type, one more or one less."""
    node = _node(rng, proto)
    if node is None:
        return
    known = list(defs.get_schema(node.op_type).attributes) if defs.has(node.op_type) else []
    names = [*known, *(a.name for a in node.attribute)] or ["axis"]
    name = rng.choice(names)
    kept = [a for a in node.attribute if a.name != name]
    integers = [rng.choice(INTEGERS) for _ in range(rng.randrange(5))]
    value = rng.choice([rng.choice(INTEGERS), rng.choice(FLOATS), rng.choice(TEXTS), integers, [1.5], ["a"], None])
    del node.attribute[:]
    node.attribute.extend(kept)
    if value is not None and value != []:
        node.attribute.append(helper.make_attribute(name, value))


def integer_attribute(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Another integer where an attribute has one, or one for an attribute that the schema knows."""
    node = _node(rng, proto)
    if node is None:
        return
    having = [a for a in node.attribute if a.ints or a.type == onnx.AttributeProto.INT]
    if having:
        one = rng.choice(having)
        if one.ints:
            one.ints[rng.randrange(len(one.ints))] = rng.choice(INTEGERS)
        else:
            one.i = rng.choice(INTEGERS)


def operator(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Another operator for the same inputs."""
    node = _node(rng, proto)
    if node is not None:
        node.op_type = rng.choice(OPERATORS)


def edges(rng: random.Random, proto: onnx.ModelProto) -> None:
    """An input of a node that comes from elsewhere, or one more or less."""
    node = _node(rng, proto)
    names = [n for other in _all_of(proto, onnx.NodeProto) for n in (*other.input, *other.output)] or ["x"]
    if node is None:
        return
    ends = node.input if rng.random() < 0.8 else node.output
    if ends and rng.random() < 0.7:
        ends[rng.randrange(len(ends))] = rng.choice((*names, ""))
    elif ends and rng.random() < 0.5:
        del ends[rng.randrange(len(ends))]
    else:
        ends.append(rng.choice(names))


def declared_type(rng: random.Random, proto: onnx.ModelProto) -> None:
    """An input of another element type, rank or extent."""
    infos = [v for v in _all_of(proto, onnx.ValueInfoProto) if v.type.HasField("tensor_type")]
    if not infos:
        return
    kind = rng.choice(infos).type.tensor_type
    choice = rng.random()
    if choice < 0.4:
        kind.elem_type = rng.choice([*TensorProto.DataType.values(), 99])
    elif choice < 0.6:
        kind.shape.dim.add(dim_value=rng.choice((0, 1, 2)))
    elif choice < 0.65:
        for _ in range(33):
            kind.shape.dim.add(dim_value=1)
    elif kind.shape.dim:
        k = rng.randrange(len(kind.shape.dim))
        if choice < 0.75:
            del kind.shape.dim[k]
        else:
            kind.shape.dim[k].dim_value = rng.choice((0, 1, 2, 3, 7))


def stored_tensor(rng: random.Random, proto: onnx.ModelProto) -> None:
    """A weight of another shape or type, or with other values; or an input that becomes a weight."""
    tensors = _all_of(proto, TensorProto)
    if proto.graph.input and (not tensors or rng.random() < 0.5):
        name = rng.choice(proto.graph.input).name
        values = [rng.choice(INTEGERS) for _ in range(rng.randrange(4))]
        proto.graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return
    if not tensors:
        return
    one = rng.choice(tensors)
    if rng.random() < 0.5:
        one.data_type = rng.choice([*TensorProto.DataType.values(), 99])
    elif one.dims:
        one.dims[rng.randrange(len(one.dims))] = rng.choice(INTEGERS)
    else:
        one.dims.append(rng.choice(INTEGERS))


def opset(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Another opset version."""
    if proto.opset_import:
        rng.choice(proto.opset_import).version = rng.randint(-1, 27)


_KINDS: tuple[Mutation, ...] = (
    *(insertions.types, insertions.quantized, insertions.sequences, insertions.growing, insertions.doubling),
    *(insertions.products, damage.raw_data, damage.external, damage.circle, damage.same_names, damage.dimensions),
    *(damage.capture, damage.function, damage.sparse, damage.text, damage.attribute_message, damage.metadata),
    damage.old_opset,
)
_MUTATIONS: tuple[Mutation, ...] = (
    *(any_field, any_field, attribute, attribute, integer_attribute, integer_attribute),
    *(operator, edges, declared_type, stored_tensor, stored_tensor, opset),
)
