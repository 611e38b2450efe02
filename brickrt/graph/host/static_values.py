"""Values that are known before the model runs: shapes, and what follows from constants alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from brickrt.graph.allowance import allowance
from brickrt.graph.builder import OnnxNode
from brickrt.graph.host.run_host_node import deterministic, reads, run_node
from brickrt.graph.ir import Node
from brickrt.ops.base import Op
from brickrt.ops.types import TensorType

FOLDED_GROWTH_BYTES = 1 << 24
"""Bytes by which a folded constant may be larger than what it is computed from."""

FOLDED_FLOPS = 1 << 33
"""Operations that may be spent on a constant: a second or two in NumPy, which nothing interrupts."""


ELEMENT_BYTES = 24
"""Bytes that an element takes while a definition computes: up to three numbers of float64."""


def definition_bytes(op: Op, ins: Sequence[TensorType], out: TensorType) -> int:
    """Memory that the definition of an operator takes: a window's elements, for each output, in columns."""
    columns = op.flops(ins, out) // out.shape[1] * 4 if op.name == "Conv" and out.size else 0
    return columns + ELEMENT_BYTES * (out.size + sum(t.size for t in ins))


def static_value(node: OnnxNode, type: TensorType) -> np.ndarray | None:
    """The result of Shape or Size, which follows from the type of the input; None for any other operator."""
    if node.domain or node.op_type not in ("Shape", "Size"):
        return None
    if node.op_type == "Size":
        return np.asarray(type.size, np.int64)
    return np.asarray(type.shape[slice(node.attrs.get("start", 0), node.attrs.get("end"))], np.int64)


def small_enough(results: Iterable[TensorType], operands: Iterable[np.ndarray]) -> bool:
    """Whether constants of these types may take the place of the operands they are computed from."""
    return sum(t.nbytes for t in results) <= sum(a.nbytes for a in operands) + FOLDED_GROWTH_BYTES


def quick_enough(nodes: Sequence[Node], types: Mapping[str, TensorType]) -> bool:
    """Whether NumPy may compute these nodes before the model runs, and memory that the model may take holds what it
    computes; kernels are faster, and need less."""
    made = sum(definition_bytes(n.op, [types[i] for i in n.inputs], types[n.output]) for n in nodes)
    allowed = allowance()
    if allowed is not None and made > FOLDED_GROWTH_BYTES and not allowed.has_room(made):
        return False
    return sum(n.op.flops([types[i] for i in n.inputs], types[n.output]) for n in nodes) <= FOLDED_FLOPS


def fold_on_host(
    node: OnnxNode, opsets: Mapping[str, int], constants: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray] | None:
    """The outputs of an ONNX node with constant inputs; None where they are no arrays or chance decides."""
    if not deterministic(node):
        return None
    operands = {name: constants[name] for name in reads(node)} | {"": None}
    results = dict(zip(node.outputs, run_node(node, opsets, operands)))
    named = {name: value for name, value in results.items() if name}
    return named if all(isinstance(value, np.ndarray) for value in named.values()) else None
