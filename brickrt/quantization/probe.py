"""What quantizing one layer does to its output while all others stay in float, for all layers in one run.

    x ────────────────── layer ── y ──┬── …
    └─ Q ─ DQ ── layer of bytes ── y' ─┴─ y - y'

The quantized layers are taken from the quantized model, so that the noise is that of its scales and roundings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from brickrt.quantization.float_model import WeightedLayer
from brickrt.quantization.given import Samples
from brickrt.quantization.noise import decibels
from brickrt.runtime.progress import Progress
from brickrt.runtime.session.runtime import Runtime

MOST_SAMPLES = 16  # that are probed, evenly chosen; ratios of sums over all elements hardly change with more
AT_OUTPUT = "_QuantizeLinear_Input"  # what onnxruntime.quantization calls an output before it is quantized
SIGNAL, NOISE, TWIN, APART = "·signal", "·noise", "·twin", "·apart"


@dataclass(frozen=True)
class LayerNoise:
    """A layer, the ratio of its output to the noise that bytes in its input and weights add to it, and why it stays in
    float: "" where it does not."""

    layer: WeightedLayer
    sqnr_db: float
    why_float: str = ""


def probed_noise(
    model: onnx.ModelProto,
    quantized: onnx.ModelProto,
    layers: Sequence[WeightedLayer],
    samples: Samples,
    threads: int | None,
    progress: Progress,
) -> dict[str, float]:
    """The ratio of signal to noise of each layer in dB, by its name."""
    runtime = Runtime(probe_model(model, quantized, layers), device="cpu", threads=threads)
    totals: dict[str, float] = {}
    step = -(-len(samples) // MOST_SAMPLES)
    for k in range(0, len(samples), step):
        progress("probe layers", k, len(samples))
        for name, value in runtime.execute(samples[k]).items():
            totals[name] = totals.get(name, 0.0) + float(value.sum())
    return {layer.name: decibels(totals[layer.name + SIGNAL], totals[layer.name + NOISE]) for layer in layers}


def probe_model(model: onnx.ModelProto, quantized: onnx.ModelProto, layers: Sequence[WeightedLayer]) -> onnx.ModelProto:
    """The float model with each layer's quantized twin beside it, whose outputs are sums of squares alone."""
    wanted = {layer.name: layer for layer in layers}
    twins = {node.name: node for node in quantized.graph.node if node.name in wanted}
    writers = {name: node for node in quantized.graph.node for name in node.output}
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:], made.graph.output[:]
    known = {tensor.name for tensor in made.graph.initializer}
    made.graph.initializer.extend(t for t in quantized.graph.initializer if t.name not in known)
    written: set[str] = set()
    for node in model.graph.node:
        made.graph.node.append(node)
        if node.name in wanted:
            made.graph.node.extend(_twin(node, twins[node.name], writers, written))
            made.graph.node.extend(_sums(node))
            made.graph.output.extend(
                helper.make_tensor_value_info(node.name + end, TensorProto.FLOAT, None) for end in (SIGNAL, NOISE)
            )
    return made


def _twin(
    node: onnx.NodeProto, twin: onnx.NodeProto, writers: Mapping[str, onnx.NodeProto], written: set[str]
) -> Iterator[onnx.NodeProto]:
    """The quantized layer of a node, behind those of its conversions that are not there yet."""
    for name in twin.input:
        if name in writers:
            yield from _conversions(writers[name], writers, written)
    yield _renamed(twin, [name + TWIN if name in writers else name for name in twin.input], node.output[0])


def _conversions(
    node: onnx.NodeProto, writers: Mapping[str, onnx.NodeProto], written: set[str]
) -> Iterator[onnx.NodeProto]:
    """DequantizeLinear and, where it reads no constant, the QuantizeLinear of a float tensor before it."""
    if node.output[0] in written:
        return
    written.add(node.output[0])
    first, *others = node.input
    if node.op_type == "DequantizeLinear" and first in writers:
        yield from _conversions(writers[first], writers, written)
        first += TWIN
    yield _renamed(node, [first.removesuffix(AT_OUTPUT), *others], node.output[0])


def _renamed(node: onnx.NodeProto, inputs: Sequence[str], output: str) -> onnx.NodeProto:
    """A copy of a node that reads other tensors and writes `output` of the twins."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.input[:]
    copy.input.extend(inputs)
    copy.name, copy.output[0] = node.name + TWIN, output + TWIN
    return copy


def _sums(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    y = node.output[0]
    yield helper.make_node("Sub", [y, y + TWIN], [y + APART])
    yield helper.make_node("ReduceSumSquare", [y], [node.name + SIGNAL], keepdims=0)
    yield helper.make_node("ReduceSumSquare", [y + APART], [node.name + NOISE], keepdims=0)
