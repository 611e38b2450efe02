"""Puts nodes into a model that it did not have: of other types, quantized, in sequences, and such that grow."""

from __future__ import annotations

import random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ODD_TYPES = tuple(sorted(set(helper.get_all_tensor_dtypes()) - {TensorProto.UNDEFINED}))
SCALES = (0.0, -0.0, -1.0, 1.0, 0.5, 1e-40, 1e30, float("inf"), float("nan"))
EXTENTS = (0, 1, 2, 7, 1 << 10, 1 << 14, 1 << 20, 1 << 26, 1 << 28, 1 << 31, -1)
EQUATIONS = (
    "ij->ji",
    "...->...",
    "i...,i...->i",
    "ij,kl->ijkl",
    "ii->i",
    "ab,bc,cd->ad",
    "->",
    "i->",
    ",->",
    "ij,jk",
    "a->bb",
)


def _names(proto: onnx.ModelProto) -> list[str]:
    made = [name for node in proto.graph.node for name in node.output if name]
    return made or [v.name for v in proto.graph.input] or ["x"]


def _constant(proto: onnx.ModelProto, array: np.ndarray) -> str:
    name = f"put_{len(proto.graph.initializer)}"
    proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return name


def _behind(proto: onnx.ModelProto, name: str, nodes: list[onnx.NodeProto]) -> None:
    """Nodes behind the tensor `name`, the last of which writes an output of the model."""
    proto.graph.node.extend(nodes)
    proto.graph.output.append(onnx.ValueInfoProto(name=nodes[-1].output[0]))


def _chain(proto: onnx.ModelProto, name: str, steps: list[tuple[str, list[str], dict[str, object]]]) -> None:
    """Operators one behind the other, each with more inputs and attributes."""
    stem, nodes = f"chain_{len(proto.graph.node)}", []
    for k, (op, more, options) in enumerate(steps):
        target = f"{stem}_{k}"
        nodes.append(helper.make_node(op, [name, *more], [target], **options))
        name = target
    _behind(proto, name, nodes)


def types(rng: random.Random, proto: onnx.ModelProto) -> None:
    """A tensor in another type, bfloat16, float8, of four bits or text, and what an operator makes of that."""
    odd = rng.choice(ODD_TYPES)
    steps = [("Cast", [], {"to": odd})]
    steps += [(rng.choice(("Relu", "Neg", "Identity", "Transpose", "Shape", "ReduceSum", "Softmax", "Abs")), [], {})]
    steps += [("Cast", [], {"to": rng.choice((TensorProto.FLOAT, TensorProto.INT64, rng.choice(ODD_TYPES)))})]
    _chain(proto, rng.choice(_names(proto)), steps[: rng.randint(1, 3)])


def quantized(rng: random.Random, proto: onnx.ModelProto) -> None:
    """A tensor quantized and back, with odd scales and zero points."""
    count = rng.choice((0, 1, 1, 2, 3, 4))
    scale = np.float32([rng.choice(SCALES) for _ in range(max(count, 1))])
    kind = rng.choice((np.uint8, np.int8, np.uint16, np.int32, np.float32))
    zero = np.array([rng.choice((0, 1, 127, -128, 255)) for _ in range(rng.choice((len(scale), 1, 2)))]).astype(kind)
    given = [_constant(proto, scale[0] if count == 0 else scale), _constant(proto, zero[0] if count == 0 else zero)]
    options = {"axis": rng.choice((-3, -1, 0, 1, 2, 9))} if rng.random() < 0.6 else {}
    if rng.random() < 0.2:
        options["block_size"] = rng.choice((-1, 0, 1, 2, 1 << 40))
    steps = [("QuantizeLinear", given, options), ("DequantizeLinear", given, options)]
    if rng.random() < 0.2:
        steps = [("DynamicQuantizeLinear", [], {})]
    _chain(proto, rng.choice(_names(proto)), steps)


def sequences(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Tensors in a sequence or an optional, and operators on these, right or wrong."""
    at, two = _constant(proto, np.int64(rng.choice((0, -1, 1, 5, -(1 << 63))))), rng.choice(_names(proto))
    steps = [
        ("SequenceConstruct", [two] * rng.randrange(3), {}),
        ("SplitToSequence", rng.choice(([], [at])), {"axis": rng.choice((0, 1, -1, 4)), "keepdims": rng.randint(0, 1)}),
        ("Optional", [], {}),
    ]
    ends = [
        ("SequenceAt", [at], {}),
        ("ConcatFromSequence", [], {"axis": rng.choice((0, 1, -1, 3)), "new_axis": rng.randint(0, 1)}),
        ("SequenceLength", [], {}),
        ("SequenceErase", [at], {}),
        ("SequenceInsert", [two, at], {}),
        ("OptionalGetElement", [], {}),
        ("OptionalHasElement", [], {}),
        ("Relu", [], {}),
    ]
    chosen = [rng.choice(ends) for _ in range(rng.randint(0, 3))]
    _chain(proto, rng.choice(_names(proto)), [rng.choice(steps), *chosen])


def growing(rng: random.Random, proto: onnx.ModelProto) -> None:
    """A tensor of large extents that the file decides, and operators that read it."""
    extents = [rng.choice(EXTENTS) for _ in range(rng.randint(1, 3))]
    name, shape = f"large_{len(proto.graph.node)}", _constant(proto, np.int64(extents))
    value = numpy_helper.from_array(np.array([rng.choice((0, 1))], rng.choice((np.float32, np.int64, np.uint8, bool))))
    choice = rng.randrange(4)
    if choice == 0:
        proto.graph.node.append(helper.make_node("ConstantOfShape", [shape], [name], value=value))
    elif choice == 1:
        ends = [_constant(proto, np.int64(v)) for v in (0, rng.choice(EXTENTS), 1)]
        proto.graph.node.append(helper.make_node("Range", ends, [name]))
    elif choice == 2:
        proto.graph.node.append(helper.make_node("RandomNormal", [], [name], shape=[abs(v) for v in extents]))
    else:
        proto.graph.node.append(
            helper.make_node(rng.choice(("Expand", "Tile")), [rng.choice(_names(proto)), shape], [name])
        )
    ends = ("Relu", "ReduceSum", "Transpose", "Cast", "NonZero", "Unique", "CumSum", "TopK", "Softmax", "LRN", "Det")
    steps = [(rng.choice(ends), [], {"to": 7, "size": 3, "axis": 0}) for _ in range(rng.randint(1, 3))]
    known = {"Cast": {"to"}, "LRN": {"size"}, "Softmax": {"axis"}}
    steps = [
        (op, [shape] if op in ("CumSum", "TopK") else [], {k: v for k, v in at.items() if k in known.get(op, ())})
        for op, _, at in steps
    ]
    _chain(proto, name, steps)


def doubling(rng: random.Random, proto: onnx.ModelProto) -> None:
    """A tensor that each of many nodes makes twice as large, or multiplies with itself."""
    name = rng.choice(_names(proto))
    for k in range(rng.randint(2, 34)):
        target, op = f"{name}_{k}", rng.choice(("Concat", "Concat", "MatMul", "Einsum", "Tile", "Resize"))
        other, options = [name], {}
        if op == "Concat":
            options["axis"] = rng.choice((0, 0, 0, 1, -1))
        elif op == "Einsum":
            options["equation"] = rng.choice(EQUATIONS)
        elif op == "Tile":
            other = [_constant(proto, np.int64([rng.choice((1, 2, 100))] * rng.randint(1, 4)))]
        elif op == "Resize":
            other = ["", _constant(proto, np.float32([1, 1, 2, 2]))]
        proto.graph.node.append(helper.make_node(op, [name, *other], [target], **options))
        name = target
    proto.graph.output.append(onnx.ValueInfoProto(name=name))


def products(rng: random.Random, proto: onnx.ModelProto) -> None:
    """Large products of tensors that the file makes: convolutions, matrices, Einsum."""
    kind = rng.choice((np.float32, np.float32, np.float64, np.int32, np.float16))
    value, n = numpy_helper.from_array(np.ones(1, kind)), len(proto.graph.node)
    side = rng.choice((64, 500, 1500, 3000, 6000))
    rank = rng.choice((2, 2, 4))
    shape = [side, side] if rank == 2 else [1, rng.choice((1, 3, 16)), side, side]
    given = [_constant(proto, np.int64(shape)), _constant(proto, np.int64([*shape[:-2], rng.choice((side, 99)), side]))]
    made = [f"factor_{n}_{k}" for k in range(2)]
    for source, target in zip(given, made):
        proto.graph.node.append(helper.make_node("ConstantOfShape", [source], [target], value=value))
    op = rng.choice(("MatMul", "Einsum", "Conv", "Gemm", "ConvTranspose", "MaxPool", "MatMulInteger"))
    options = (
        {"equation": rng.choice(("ij,jk->ik", "ij,kl->ijkl", "ij,kj->", "...ij,...kl->..."))} if op == "Einsum" else {}
    )
    if op == "MaxPool":
        made, options = made[:1], {"kernel_shape": [rng.choice((2, 99, 999))] * 2}
    if op.startswith("Conv") and rng.random() < 0.5:
        options = {"pads": [rng.choice((1, 100, 3000))] * 4}
    _behind(proto, made[0], [helper.make_node(op, made, [f"product_{n}"], **options)])
