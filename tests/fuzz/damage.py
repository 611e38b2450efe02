"""Damages a model where no single field does: weights' data, files, names, edges, functions, captures, metadata."""

from __future__ import annotations

import random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LOCATIONS = ("", "/etc/passwd", "../x", "weights.bin", "/dev/zero", "a\0b", ".", "~/x", "C:\\x", "//x/y", "x" * 300)
NUMBERS = ("0", "-1", "1", "9223372036854775807", "18446744073709551616", "nan", "", "1e3", " 4")


def raw_data(rng: random.Random, proto: onnx.ModelProto) -> None:
    """A weight with too little or too much data, in the wrong field, or in two."""
    if not proto.graph.initializer:
        proto.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0]))
    one = rng.choice(proto.graph.initializer)
    choice = rng.randrange(5)
    if choice == 0:
        one.raw_data = one.raw_data[: rng.randrange(len(one.raw_data) + 1)]
    elif choice == 1:
        one.raw_data = one.raw_data + bytes(rng.choice((1, 3, 4, 4096)))
    elif choice == 2:
        one.float_data.extend([1.0] * rng.randrange(1, 5))
    elif choice == 3:
        one.string_data.extend([b"a", b"\xff\xfe"])
    else:
        one.int32_data.extend(rng.choice(((-1,), (1 << 30, 5), (256,) * 4)))


def external(rng: random.Random, proto: onnx.ModelProto) -> None:
    """A weight in a file that is not there, not allowed, or not so long."""
    tensors = [*proto.graph.initializer, *(a.t for n in proto.graph.node for a in n.attribute if a.HasField("t"))]
    if not tensors:
        return
    one = rng.choice(tensors)
    one.ClearField("raw_data")
    one.data_location = TensorProto.EXTERNAL
    for key in ("location", "offset", "length", "checksum", "other"):
        if rng.random() < (0.95 if key == "location" else 0.4):
            one.external_data.add(key=key, value=rng.choice(LOCATIONS if key == "location" else NUMBERS))


def circle(rng: random.Random, proto: onnx.ModelProto) -> None:
    """An edge that leads back, or to the node itself."""
    nodes = list(proto.graph.node)
    if nodes and (late := [name for name in nodes[-1].output if name]):
        first = rng.choice(nodes)
        if first.input:
            first.input[rng.randrange(len(first.input))] = rng.choice(late)
        else:
            first.input.append(rng.choice(late))


def same_names(rng: random.Random, proto: onnx.ModelProto) -> None:
    """One name for two things: outputs, inputs, weights, nodes, functions."""
    graph = proto.graph
    names = [
        *(v.name for v in (*graph.input, *graph.output, *graph.initializer)),
        *(o for n in graph.node for o in n.output),
    ]
    parts = [*graph.input, *graph.output, *graph.initializer]
    choice = rng.randrange(4)
    if choice == 0 and parts and names:
        rng.choice(parts).name = rng.choice(names)
    elif choice == 1 and parts:
        one = rng.choice(parts)
        (graph.initializer if isinstance(one, TensorProto) else rng.choice((graph.input, graph.output))).append(one)
    elif choice == 2 and graph.node:
        graph.node.append(rng.choice(graph.node))
    elif graph.node and names:
        node = rng.choice(graph.node)
        if node.output:
            node.output[rng.randrange(len(node.output))] = rng.choice(names)


def dimensions(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Extents of inputs and outputs: symbolic, shared, zero, huge, unknown."""
    for value in rng.sample([*proto.graph.input, *proto.graph.output], k=min(2, len(proto.graph.input))):
        kind = value.type.tensor_type
        if rng.random() < 0.15:
            kind.ClearField("shape")
        for one in kind.shape.dim:
            choice = rng.random()
            if choice < 0.3:
                one.dim_param = rng.choice(("N", "M", "", "batch size", "N+1", "-1"))
            elif choice < 0.5:
                one.dim_value = rng.choice((0, 0, 1, 3, 64, 1 << 12, 1 << 33, -1))
            elif choice < 0.6:
                one.Clear()


def capture(rng: random.Random, proto: onnx.ModelProto) -> None:
    """A branch, loop or scan whose body reads what is outside, with too many or too few ends."""
    names = [o for n in proto.graph.node for o in n.output if o] or ["x"]
    nodes = [
        helper.make_node(rng.choice(("Relu", "Identity", "Neg", "Shape")), [rng.choice((*names, "nowhere"))], ["inner"])
    ]
    body = helper.make_graph(
        nodes, rng.choice(("b", "")), [], [onnx.ValueInfoProto(name=rng.choice(("inner", names[0])))]
    )
    form, target = rng.choice(("If", "Loop", "Scan")), f"out_{len(proto.graph.node)}"
    scalar = f"cond_{len(proto.graph.initializer)}"
    value = rng.choice(
        (np.array(True), np.int64(rng.choice((0, 2, -1, 10**9))), np.array([True, False]), np.array([], bool))
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.asarray(value), scalar))
    if form != "If" and rng.random() < 0.8:
        kinds = [TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT][: rng.randint(0, 3)]
        body.input.extend(helper.make_tensor_value_info(f"end{k}", kind, []) for k, kind in enumerate(kinds))
        if rng.random() < 0.8 and len(kinds) > 1:
            body.output.insert(0, helper.make_tensor_value_info("end1", TensorProto.BOOL, []))
    if form == "If":
        node = helper.make_node("If", [scalar], [target], then_branch=body)
        if rng.random() < 0.9:
            node.attribute.append(helper.make_attribute("else_branch", body))
    elif form == "Loop":
        node = helper.make_node(
            "Loop", [scalar, rng.choice(("", scalar)), *names[: rng.randrange(2)]], [target], body=body
        )
    else:
        node = helper.make_node(
            "Scan", names[: rng.randint(1, 2)], [target], body=body, num_scan_inputs=rng.choice((-1, 0, 1, 5))
        )
    proto.graph.node.append(node)
    proto.graph.output.append(onnx.ValueInfoProto(name=target))


def function(rng: random.Random, proto: onnx.ModelProto) -> None:
    """A local function: of a standard name, with attributes, called with too few ends, or that calls itself."""
    domain, name = (
        rng.choice((("", "Relu"), ("own", "F"), ("ai.onnx", "Add"), ("own", ""))),
        f"f_{len(proto.graph.node)}",
    )
    body = [helper.make_node(rng.choice(("LeakyRelu", "Elu", "Softmax", domain[1] or "Relu")), ["a"], ["b"])]
    reference = body[0].attribute.add(name="alpha", ref_attr_name=rng.choice(("alpha", "beta", "")))
    reference.type = rng.choice((onnx.AttributeProto.FLOAT, onnx.AttributeProto.INT, onnx.AttributeProto.UNDEFINED))
    imports = [helper.make_opsetid("", rng.randint(1, 25)), helper.make_opsetid("own", 1)]
    one = helper.make_function(
        domain[0], domain[1] or "F", ["a", "c"][: rng.randint(0, 2)], ["b"], body, imports, ["alpha"]
    )
    if rng.random() < 0.3:
        one.attribute_proto.append(helper.make_attribute("beta", rng.choice((1.0, "x", [1, 2]))))
    proto.functions.append(one)
    proto.opset_import.append(helper.make_opsetid("own", 1))
    given = [o for n in proto.graph.node for o in n.output if o][: rng.randint(0, 2)]
    proto.graph.node.append(helper.make_node(one.name, given, [name], domain=one.domain))
    proto.graph.output.append(onnx.ValueInfoProto(name=name))


def sparse(rng: random.Random, proto: onnx.ModelProto) -> None:
    """A weight in sparse form, with indices that may lie outside, be unordered, or of the wrong type."""
    if not proto.graph.initializer:
        return
    one = rng.choice(proto.graph.initializer)
    count, dims = rng.randrange(4), list(one.dims)
    if rng.random() < 0.3 and dims:
        dims[rng.randrange(len(dims))] = rng.choice((0, -1, 1 << 12, 1 << 24, 1 << 33, 1 << 62))
    rows = rng.choice(([count], [count, len(dims)], [count + 1], []))
    indices = [rng.choice((0, 0, 1, 2, 3, -1, 1 << 40)) for _ in range(int(np.prod(rows, dtype=int)))]
    kind = rng.choice((TensorProto.INT64, TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT))
    values = helper.make_tensor(one.name, TensorProto.FLOAT, [count], [1.0] * count)
    values.data_type = rng.choice((one.data_type, TensorProto.FLOAT))
    places = helper.make_tensor("i", TensorProto.INT64, rows, indices)
    places.data_type = kind
    made = onnx.SparseTensorProto(values=values, indices=places, dims=dims)
    proto.graph.sparse_initializer.append(made)
    if rng.random() < 0.8:
        proto.graph.initializer.remove(one)


def text(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Inputs or weights that are text."""
    for value in proto.graph.input:
        if rng.random() < 0.7:
            value.type.tensor_type.elem_type = TensorProto.STRING
    for one in proto.graph.initializer:
        size = int(np.prod([float(d) for d in one.dims]))
        if rng.random() < 0.5 and 0 <= size < 1000:
            one.CopyFrom(helper.make_tensor(one.name, TensorProto.STRING, one.dims, [b"1"] * size))
    if proto.graph.node and rng.random() < 0.6:
        proto.graph.node[0].op_type = rng.choice(
            ("StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch", "Cast")
        )


def attribute_message(rng: random.Random, proto: onnx.ModelProto) -> None:
    """An attribute whose type does not say what it holds, with long lists, graphs, tensors or references."""
    nodes = [n for n in proto.graph.node if n.attribute]
    if not nodes:
        return
    one = rng.choice(rng.choice(nodes).attribute)
    choice = rng.randrange(6)
    if choice == 0:
        one.type = rng.choice(onnx.AttributeProto.AttributeType.values())
    elif choice == 1:
        one.ints.extend([rng.choice((0, 1, -1, 1 << 40))] * rng.choice((1, 5, 100_000)))
    elif choice == 2:
        one.ref_attr_name = rng.choice(("x", "axis"))
    elif choice == 3:
        one.t.CopyFrom(TensorProto(name="t", data_type=TensorProto.FLOAT, dims=[rng.choice((0, 1, 2))]))
    elif choice == 4:
        one.graphs.add(name="g")
    else:
        one.floats.extend([float("nan"), 1e30])


def metadata(rng: random.Random, proto: onnx.ModelProto) -> None:
    """What no run reads: documents, properties, annotations, training, versions."""
    proto.metadata_props.add(key=rng.choice(("", "a", "a")), value="v" * rng.choice((0, 1, 100_000)))
    proto.doc_string = rng.choice(("", "ä" * 1000, "a\nb\0c"))
    if rng.random() < 0.4:
        proto.graph.quantization_annotation.add(tensor_name=rng.choice(("x", "", "nowhere")))
    if rng.random() < 0.3:
        proto.training_info.add()
    if rng.random() < 0.4:
        proto.ir_version = rng.choice((0, 1, 2, 3, 4, 7, 10, 13, 14, 99, -1))
    if rng.random() < 0.3:
        del proto.opset_import[:]
    proto.model_version = rng.choice((0, -1, 1 << 62))


def old_opset(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Any version of the standard operators there ever was."""
    for one in proto.opset_import:
        one.version = rng.randint(1, 25)
