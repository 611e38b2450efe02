"""Runs an ONNX graph with the functions of an array library, so that other compilers can be given the same network.

Integers that decide shapes stay NumPy arrays on the host, and nodes whose inputs are all known there are folded; so a
library, which is a `Backend`, sees straight-line code on tensors, which it can trace. Why no library does it:
bench/NOTES.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from brickrt.compare.backend import Array, Backend, TranslatedNode, Value, extents
from brickrt.compare.translate_ops import OPERATORS

SETTINGS = ("Clip", "Pad", "Resize", "Upsample")  # operators whose later inputs are numbers that the host must know


@dataclass(frozen=True)
class TranslatedNetwork:
    """The nodes of a model in order; `weights` are its floating-point tensors, `known` all other constants, by name."""

    nodes: tuple[TranslatedNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: dict[str, np.ndarray]
    known: dict[str, np.ndarray]
    opset: int


def network(model: onnx.ModelProto) -> TranslatedNetwork:
    """The main graph of a model. Raises LookupError, which names it, for an operator without translation."""
    graph = model.graph
    arrays = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    nodes = []
    for proto in graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
        attributes |= {name: value.decode() for name, value in attributes.items() if isinstance(value, bytes)}
        if proto.op_type == "Constant" and "value" in attributes:
            arrays[proto.output[0]] = numpy_helper.to_array(attributes["value"])
        else:
            nodes.append(TranslatedNode(proto.op_type, tuple(proto.input), tuple(proto.output), attributes, proto))
    settings = {name for node in nodes if node.kind in SETTINGS for name in node.inputs[1:]}
    weights = {n: a for n, a in arrays.items() if a.dtype.kind == "f" and a.ndim and n not in settings}
    known = {name: array for name, array in arrays.items() if name not in weights}
    inputs = tuple(i.name for i in graph.input if i.name not in arrays)
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    unknown = sorted({node.kind for node in nodes} - set(OPERATORS))
    if unknown:
        raise LookupError(f"no translation of {', '.join(unknown)}")
    return TranslatedNetwork(tuple(nodes), inputs, tuple(o.name for o in graph.output), weights, known, opset)


def evaluate(
    net: TranslatedNetwork, backend: Backend, weights: Mapping[str, Array], inputs: Sequence[Array]
) -> list[Array]:
    """The outputs, in order. `weights` are those of the network as arrays of the library, `inputs` in its order."""
    values: dict[str, Value] = {**net.known, **weights, **dict(zip(net.inputs, inputs, strict=True)), "": None}
    for node in net.nodes:
        operands = [values[name] for name in node.inputs]
        if node.kind == "Shape":
            results: Any = np.asarray(extents(operands[0]), np.int64)
        elif operands and all(isinstance(v, np.ndarray) for v in operands if v is not None):
            results = _fold(node, operands, net.opset)
        else:
            results = OPERATORS[node.kind](backend, node, operands)
        results = results if isinstance(results, list) else [results]
        values.update((name, result) for name, result in zip(node.outputs, results) if name)
    return [values[name] for name in net.outputs]


def _fold(node: TranslatedNode, operands: Sequence[np.ndarray], opset: int) -> list[np.ndarray]:
    """The results of a node that is known on the host."""
    inputs, outputs = (
        [helper.make_empty_tensor_value_info(name) for name in names if name]
        for names in (dict.fromkeys(node.inputs), node.outputs)
    )
    graph = helper.make_graph([node.proto], "fold", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    feeds = {name: array for name, array in zip(node.inputs, operands) if name}
    return list(ReferenceEvaluator(model).run(None, feeds))
