"""Puts a model together anew: two behind one another, nodes inside a branch, loop or function, inputs as constants."""

from __future__ import annotations

import random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TRIPS = (0, 1, 3, 1000, 10**9, -1)


def constants(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Inputs that become weights, all or some: what reads them alone is folded."""
    every = rng.random() < 0.7
    for value in [v for v in proto.graph.input if v.type.HasField("tensor_type")]:
        array = _array(rng, value.type.tensor_type)
        if array is not None and (every or rng.random() < 0.5):
            proto.graph.initializer.append(numpy_helper.from_array(array, value.name))
            proto.graph.input.remove(value)


def values(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Other bytes in a weight."""
    stored = [t for t in proto.graph.initializer if t.raw_data]
    if stored:
        one = rng.choice(stored)
        data = bytearray(one.raw_data)
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        one.raw_data = bytes(data)


def joined(rng: random.Random, proto: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Another model behind this one: its first input is this one's first output."""
    graph = onnx.GraphProto()
    graph.CopyFrom(other.graph)
    if not (proto.graph.output and graph.input):
        return
    names = {v.name: f"second_{v.name}" for v in (*graph.input, *graph.initializer)}
    names |= {name: f"second_{name}" for node in graph.node for name in node.output if name}
    names[graph.input[0].name] = proto.graph.output[0].name
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.name = names.get(value.name, value.name)
    proto.graph.node.extend(graph.node)
    proto.graph.input.extend(list(graph.input)[1:])
    proto.graph.initializer.extend(graph.initializer)
    proto.graph.output.extend(graph.output)


def inside(rng: random.Random, proto: onnx.ModelProto) -> None:
    """The nodes become a branch of an If, the body of a Loop, or a local function."""
    nodes, outputs = list(proto.graph.node), list(proto.graph.output)
    names = [v.name for v in outputs]
    body = helper.make_graph(nodes, "body", [], [helper.make_empty_tensor_value_info(f"in_{n}") for n in names])
    body.node.extend(helper.make_node("Identity", [n], [f"in_{n}"]) for n in names)
    form = rng.choice((_branch, _loop, _function))
    del proto.graph.node[:]
    form(rng, proto, body, names)


def _branch(rng: random.Random, proto: onnx.ModelProto, body: onnx.GraphProto, names: list[str]) -> None:
    proto.graph.initializer.append(numpy_helper.from_array(np.array(True), "taken"))
    proto.graph.node.append(helper.make_node("If", ["taken"], names, then_branch=body, else_branch=body))


def _loop(rng: random.Random, proto: onnx.ModelProto, body: onnx.GraphProto, names: list[str]) -> None:
    trips, going = TensorProto.INT64, TensorProto.BOOL
    body.input.append(helper.make_tensor_value_info("trip", trips, []))
    body.input.append(helper.make_tensor_value_info("going", going, []))
    body.output.insert(0, helper.make_tensor_value_info("goes_on", going, []))
    body.node.append(helper.make_node("Identity", ["going"], ["goes_on"]))
    proto.graph.initializer.append(numpy_helper.from_array(np.int64(rng.choice(TRIPS)), "trips"))
    proto.graph.node.append(helper.make_node("Loop", ["trips", ""], names, body=body))


def _function(rng: random.Random, proto: onnx.ModelProto, body: onnx.GraphProto, names: list[str]) -> None:
    given = [v.name for v in (*proto.graph.input, *proto.graph.initializer)]
    results = [f"in_{name}" for name in names]
    proto.functions.append(helper.make_function("own", "Whole", given, results, body.node, proto.opset_import))
    proto.opset_import.append(helper.make_opsetid("own", 1))
    proto.graph.node.append(helper.make_node("Whole", given, names, domain="own"))


def _array(rng: random.Random, kind: onnx.TypeProto.Tensor) -> np.ndarray | None:
    """Small numbers of a declared type; None where it is none that has an array."""
    dims = [d.dim_value for d in kind.shape.dim]
    if any(not 0 <= d < 1000 for d in dims) or np.prod(dims, dtype=float) > 10_000 or len(dims) > 32:
        return None
    if kind.elem_type not in _NUMBERS:
        return None
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    return (np.arange(int(np.prod(dims, dtype=np.int64))) % rng.randint(2, 9)).reshape(dims).astype(dtype)


_NUMBERS = frozenset(helper.get_all_tensor_dtypes()) - {TensorProto.STRING, TensorProto.UNDEFINED}
