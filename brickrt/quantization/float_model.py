"""The model that is quantized: which of its nodes are layers, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import onnx
from onnx import TensorProto

from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.converter import UPGRADE, converted
from brickrt.graph.onnx_import.source import Model, SourceGraph

OPSET = 13  # the first whose QuantizeLinear has a scale per channel
MOST_BYTES = 2**31 - 2**24  # of a message of protocol buffers, less what names and shapes take
JOINED = "/MatMulAddFusion"
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
QUANTIZED = (
    "QuantizeLinear",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "MatMulInteger",
    "ConvInteger",
    "MatMulNBits",
)
HALVES = {TensorProto.FLOAT16: "float16", TensorProto.BFLOAT16: "bfloat16"}


@dataclass(frozen=True)
class WeightedLayer:
    """A node that multiplies with constant weights: its name, unique in the model, its operator and its output."""

    name: str
    kind: str
    output: str


def read_model(model: Model, source: SourceGraph) -> onnx.ModelProto:
    """The message of a model that `source` was imported from, with its weights in it, in an opset that quantization
    knows. Raises BrickError for models that are no float32 networks, or too large for one message."""
    if source.stored_bytes > MOST_BYTES:
        raise BrickError(
            f"{source.name}: is larger than 2 GiB, which no model in one file may be: quantize parts of it"
        )
    proto = _message(model)
    kinds = [node.op_type for node in proto.graph.node]
    if found := [kind for kind in kinds if kind in QUANTIZED or kind.startswith("QLinear")]:
        raise BrickError(f"{source.name}: is quantized already, it has {found[0]}: give the float32 model")
    halves = {HALVES[tensor.data_type] for tensor in proto.graph.initializer if tensor.data_type in HALVES}
    if halves:
        raise BrickError(f"{source.name}: has {min(halves)} weights: give the float32 model")
    opset = next((each.version for each in proto.opset_import if each.domain in ("", "ai.onnx")), OPSET)
    return converted(proto, UPGRADE.format(OPSET)) if opset < OPSET else proto


def _message(model: Model) -> onnx.ModelProto:
    if isinstance(model, onnx.ModelProto):
        return model
    return onnx.ModelProto.FromString(model) if isinstance(model, bytes) else onnx.load(Path(model))


def name_nodes(model: onnx.ModelProto) -> None:
    """Gives each node that has no name of its own that of its output, so that each has one. Products that ONNX Runtime
    joined with the addition behind them keep the name they had."""
    taken: set[str] = set()
    for node in model.graph.node:
        node.name = node.name.removesuffix(JOINED)
        if not node.name or node.name in taken:
            node.name = next(name for name in node.output if name)
        taken.add(node.name)


def layers_of(model: onnx.ModelProto) -> tuple[WeightedLayer, ...]:
    """The layers of a model whose nodes have names, in its order."""
    constant = {tensor.name for tensor in model.graph.initializer}
    return tuple(
        WeightedLayer(node.name, node.op_type, node.output[0])
        for node in model.graph.node
        if node.op_type in WEIGHTED and node.input[1] in constant and node.input[0] not in constant
    )


def chosen_layers(layers: Sequence[WeightedLayer], patterns: Sequence[str]) -> set[str]:
    """The names of the layers that patterns such as `/head/*` match by their name or their output. Raises BrickError
    for a pattern that matches none."""
    chosen: set[str] = set()
    for pattern in patterns:
        found = {layer.name for layer in layers if any(fnmatchcase(n, pattern) for n in (layer.name, layer.output))}
        if not found:
            some = ", ".join(f"'{layer.name}'" for layer in layers[:3])
            raise BrickError(f"no layer is called '{pattern}': the model has {some}{', …' * (len(layers) > 3)}")
        chosen |= found
    return chosen
