"""Takes gates and channel factors out of convolutions again, for devices whose kernels do not compute these."""

from __future__ import annotations

from dataclasses import replace

from brickrt.graph.ir import Graph, Node
from brickrt.graph.rewriter import unused_name
from brickrt.ops.expr import apply, arg
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import Take
from brickrt.ops.types import TensorType


def unfuse(graph: Graph, gates: bool = True) -> Graph:
    """An equal graph in which Maps scale channels before convolutions, and if `gates`, gate their parts after them."""
    types, nodes = dict(graph.types), []
    for node in graph.nodes:
        for step in _with_product(node, types) if isinstance(node.op, Conv) else (node,):
            nodes += _with_takes(step, types) if gates and isinstance(step.op, Conv) else [step]
    return replace(graph, nodes=tuple(nodes), types=types)


def _with_product(node: Node, types: dict[str, TensorType]) -> list[Node]:
    """The multiplication of the input's channels by their factors, then the convolution."""
    op = node.op
    assert isinstance(op, Conv)
    if not op.channel_scaled:
        return [node]
    x, factors = node.inputs[0], node.inputs[op.main - 1]
    product = _fresh(f"{node.output}:scaled", types[x], types)
    inputs = (product, *node.inputs[1 : op.main - 1], *node.inputs[op.main :])
    multiply = Map(apply("mul", arg(0, types[x].dtype), arg(1, types[x].dtype)))
    return [
        Node(f"{node.name}:scaled", multiply, (x, factors), product, node.origin),
        replace(node, op=replace(op, channel_scaled=False), inputs=inputs),
    ]


def _with_takes(node: Node, types: dict[str, TensorType]) -> list[Node]:
    """The convolution, its parts, and the epilogue as a Map of them."""
    op, out = node.op, types[node.output]
    assert isinstance(op, Conv)
    if op.gate_parts == 1:
        return [node]
    assert op.epilogue is not None
    extras, each = node.inputs[op.main :], out.shape[1]
    whole = TensorType((out.shape[0], op.gate_parts * each, *out.shape[2:]), types[node.inputs[0]].dtype)
    product = _fresh(f"{node.output}:parts", whole, types)
    found = [Node(node.name, replace(op, epilogue=None, gate_parts=1), node.inputs[: op.main], product, node.origin)]
    for k in range(op.gate_parts):
        table = tuple(range(k * each, (k + 1) * each))
        part = _fresh(f"{node.output}:part{k}", TensorType(out.shape, whole.dtype), types)
        take = Take((None, table, *(None,) * (out.rank - 2)))
        found.append(Node(f"{node.name}:part{k}", take, (product,), part, node.origin))
    parts = tuple(take.output for take in found[1:])
    return [*found, Node(f"{node.name}:gate", Map(op.epilogue), (*parts, *extras), node.output, node.origin)]


def _fresh(hint: str, kind: TensorType, types: dict[str, TensorType]) -> str:
    """Adds a tensor and returns its name."""
    name = unused_name(hint, types)
    types[name] = kind
    return name
