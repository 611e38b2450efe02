"""Keeps the weights of float16 models in two bytes: products read them so, and compute in float32 as before.

Builders widen a model's float16 weights to float32, which is what ONNX computes products of float16 in here. Weights
that float16 holds exactly are narrowed again: kernels widen them in registers, in the time that sums take anyway.

A convolution by Winograd's algorithm reads sums of weights in float32, `WINOGRAD_BYTES` for each: that many are left
wide as takes a seventh more memory at most, those with the most pixels first, where the algorithm saves most.
"""

from __future__ import annotations

import math

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.graph.passes.retype import expressions
from brickrt.ops.expr import walk
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.recurrence import Recurrence
from brickrt.ops.types import TensorType

F16, F32 = np.dtype(np.float16), np.dtype(np.float32)
WINOGRAD_BYTES = 20  # that a weight of 3×3 takes: four sums and itself
WIDE_WEIGHTS_SHARE = 0.14  # of the bytes of all constants, which wide weights may take in addition
FIRST_COMPARED_WEIGHTS = 256  # others than a float16 model's hardly ever pass
PIECE = 1 << 20  # weights that are compared at a time


def narrow_weights(graph: Graph, model: Graph | None = None) -> Graph:
    """The graph with float16 weights where it is a float16 model's, as `model` tells, if given, which it was made of;
    as it is where it is not."""
    if not _computes_halves(model or graph):
        return graph
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    narrow = {
        name: array.astype(F16)
        for name, array in graph.constants.items()
        if array.dtype == F32 and all(_takes_narrow(graph, node, name) for node in readers[name]) and _fits(array)
    }
    for name in _left_wide(graph, narrow, readers):
        del narrow[name]
    types = {name: TensorType(array.shape, F16) for name, array in narrow.items()}
    constants = {**graph.constants, **narrow}
    return Graph(graph.nodes, {**graph.types, **types}, constants, graph.inputs, graph.outputs).verify()


def _computes_halves(graph: Graph) -> bool:
    """Whether tensors or steps between them are float16."""
    if any(kind.dtype == F16 for kind in graph.types.values()):
        return True
    return any(e.dtype == F16 for node in graph.nodes for expr in expressions(node.op) for e in walk(expr))


def _takes_narrow(graph: Graph, node: Node, name: str) -> bool:
    """Whether a node reads a constant as weights alone, and multiplies in float32."""
    if not isinstance(node.op, Conv | ConvTranspose | MatMul | Recurrence) or [*node.inputs].count(name) > 1:
        return False
    return node.inputs[1] == name and graph.types[node.inputs[0]].dtype == F32


def _fits(array: np.ndarray) -> bool:
    """Whether float16 holds all elements exactly."""
    flat = array.ravel(order="K")  # no copy of a matrix that is turned
    starts = [0, *range(FIRST_COMPARED_WEIGHTS, flat.size, PIECE)]
    pieces = (flat[start:end] for start, end in zip(starts, [*starts[1:], flat.size], strict=True))
    with np.errstate(over="ignore"):
        return all(np.array_equal(piece.astype(F16).astype(F32), piece) for piece in pieces)


def _left_wide(graph: Graph, narrow: dict[str, np.ndarray], readers: dict[str, list[Node]]) -> list[str]:
    """The weights, among these, that stay float32 for Winograd's algorithm."""
    allowed = WIDE_WEIGHTS_SHARE * sum(narrow.get(name, array).nbytes for name, array in graph.constants.items())
    pixels = {name: _window_pixels(graph, readers[name]) for name in narrow}
    left = []
    for name in sorted((name for name in narrow if pixels[name]), key=lambda name: -pixels[name]):
        more = narrow[name].size * (WINOGRAD_BYTES - F16.itemsize)
        if more <= allowed:
            left.append(name)
            allowed -= more
    return left


def _window_pixels(graph: Graph, nodes: list[Node]) -> int:
    """Pixels that ungrouped convolutions with windows of several pixels compute; 0 for other products."""
    windows = [n for n in nodes if isinstance(n.op, Conv) and n.op.groups == 1 and math.prod(n.op.kernel) > 1]
    return sum(graph.out(node).size // graph.out(node).shape[1] for node in windows)
