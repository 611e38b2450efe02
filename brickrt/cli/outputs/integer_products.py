"""Which products of a quantized network are computed as integers, and which stay in float."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from brickrt.cli.outputs.json_output import Json
from brickrt.cli.terminal.text import printable
from brickrt.graph.ir import Node
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.ops.operators.block_matmul import BlockMatMul
from brickrt.plan.cost.product_counts import BYTES
from brickrt.plan.plan import Plan

QUANTIZED = ("DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger")
PRODUCTS = ("Conv", "ConvTranspose", "MatMul")
SHOWN = 2  # names in a line


def integer_products(source: SourceGraph, plans: Sequence[Plan]) -> Json | None:
    """How many products there are of bytes, how many of floats with weights of few bits, and the names of those of
    floats alone; None for a network without quantized tensors."""
    if not any(node.op_type in QUANTIZED for node in source.nodes):
        return None
    floats: list[str] = []
    count = few_bits = 0
    for plan in plans:
        for node in plan.graph.nodes:
            few_bits += node.op.name == BlockMatMul.name
            if node.op.name in PRODUCTS:
                integers = plan.graph.ins(node)[0].dtype in BYTES
                count += integers
                floats += [] if integers else _names(node)
    return {"products": count, "few_bits": few_bits, "in_float": floats}


def integer_line(told: Json) -> str:
    """One line about them."""
    count, names = told["products"], told["in_float"]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    left = f"in float {len(names)}: {', '.join(names[:SHOWN])}{more}" if names else "none in float"
    stored = f"{few} of floats with weights of few bits; " if (few := told["few_bits"]) else ""
    return printable(f"integers {count} products of bytes; {stored}{left}")


def _names(node: Node) -> Iterable[str]:
    return [node.origin[0] if node.origin else node.name]
