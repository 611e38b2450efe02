"""The operators that multiply two factors, and what all of them have."""

from __future__ import annotations

from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.matmul import MatMul

Product = Conv | ConvTranspose | MatMul


def parts_of(op: Product) -> int:
    """How many parts of what a product sums its epilogue combines; they are its first operands."""
    return 1 if isinstance(op, MatMul) else op.gate_parts
