"""Which products are computed as integers or of bfloat16, and which stay in float."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from brickrt.cli.outputs.json_output import Json
from brickrt.cli.terminal.text import printable
from brickrt.graph.ir import Node
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.ops.operators.block_matmul import BlockMatMul
from brickrt.plan.cost.product_counts import BYTES
from brickrt.plan.plan import Plan

QUANTIZED = frozenset(
    "DequantizeLinear QLinearConv QLinearMatMul ConvInteger MatMulInteger QGemm MatMulIntegerToFloat "
    "DynamicQuantizeMatMul MatMulNBits QAttention".split()
)
PRODUCTS = ("Conv", "ConvTranspose", "MatMul")
SHOWN_NAMES = 2  # in a line


def integer_products(source: SourceGraph, plans: Sequence[Plan]) -> Json | None:
    """How many products there are of bytes, how many of floats with weights of few bits, and the names of those of
    floats alone; None for a network without quantized tensors."""
    if not any(node.op_type in QUANTIZED for node in source.nodes):
        return None
    few_bits = sum(node.op.name == BlockMatMul.name for plan in plans for node in plan.graph.nodes)
    return _counted(plans, lambda dtype: dtype in BYTES) | {"few_bits": few_bits}


def bfloat16_products(plans: Sequence[Plan]) -> Json | None:
    """How many products there are of bfloat16, the names of those of floats, and whether the device gains by them: else
    there are none. None where nobody asked for any."""
    if not plans or plans[0].options.precision != "bf16":
        return None
    counted = _counted(plans, lambda dtype: dtype.name == "bfloat16")
    return counted | {"gains": plans[0].device.gains_by_bfloat16}


def _counted(plans: Sequence[Plan], narrow: Callable[[np.dtype], bool]) -> Json:
    """How many products have factors of a narrow type, and the names of the others."""
    products = [(plan, node) for plan in plans for node in plan.graph.nodes if node.op.name in PRODUCTS]
    floats = [node for plan, node in products if not narrow(plan.graph.ins(node)[0].dtype)]
    return {"products": len(products) - len(floats), "in_float": [name for node in floats for name in _names(node)]}


def integer_line(told: Json) -> str:
    """One line about them."""
    stored = f"{few} of floats with weights of few bits; " if (few := told["few_bits"]) else ""
    return _line("integers", "bytes", told, stored)


def bfloat16_line(told: Json) -> str:
    """One line about them, or that the processor is as fast in float32."""
    if not told["gains"]:
        return "bf16     this processor multiplies float32 as fast: all is computed in float32"
    return _line("bf16    ", "bfloat16", told)


def _line(title: str, factors: str, told: Json, also: str = "") -> str:
    count, names = told["products"], told["in_float"]
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    left = f"in float {len(names)}: {', '.join(names[:SHOWN_NAMES])}{more}" if names else "none in float"
    return printable(f"{title} {count} products of {factors}; {also}{left}")


def _names(node: Node) -> Iterable[str]:
    return [node.origin[0] if node.origin else node.name]
