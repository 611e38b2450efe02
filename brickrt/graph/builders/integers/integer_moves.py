"""Operators that only move or compare elements, between dequantizing and quantizing again by the same scale."""

from __future__ import annotations

from brickrt.graph.builder import Builder
from brickrt.graph.builders.integers.quantized_tensors import as_bytes
from brickrt.ops.base import Op
from brickrt.ops.operators.move import Concat, Take, Transpose, View
from brickrt.ops.operators.pool import Pool


def moved_integers(b: Builder, name: str, scale: float, zero: int) -> str | None:
    """The unsigned bytes that `name` is quantized to, by `scale` and by `zero`, that of an unsigned byte.

    `name` moves or compares tensors that all have this scale and zero point; None where it does not.
    """
    writer = next((node for node in reversed(b.nodes) if node.output == b.resolve(name)), None)
    if writer is None or not _keeps_values(writer.op):
        return None
    sources = [as_bytes(b, source) for source in writer.inputs]
    if any(source is None or source[1:] != (scale, zero) for source in sources):
        return None
    return b.emit(writer.op, *(source[0] for source in sources if source), hint="integers")


def _keeps_values(op: Op) -> bool:
    """Whether every element of the output is one of the inputs'."""
    if isinstance(op, Take):
        return all(table is None or min(table, default=0) >= 0 for table in op.tables)
    return isinstance(op, View | Transpose | Concat) or (isinstance(op, Pool) and op.kind == "max")
