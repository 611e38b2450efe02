"""Operators that only move or compare elements, before quantizing: they do it with bytes."""

from __future__ import annotations

from brickrt.graph.builder import Builder
from brickrt.graph.builders.common import elementwise
from brickrt.graph.builders.integers.quantized_tensors import as_bytes, keeps_values, unsigned
from brickrt.graph.builders.scalar import div, like
from brickrt.ops.operators.move import Concat, Transpose, View


def quantized_twin(b: Builder, name: str, scale: float, zero: int) -> str:
    """The unsigned bytes that a float32 tensor is quantized to, by `scale` and by `zero`, that of an unsigned byte."""
    known = as_bytes(b, name)
    if known and known[1:] == (scale, zero):
        return known[0]
    return _moved(b, name, scale, zero) or elementwise(
        b, lambda x: unsigned(div(x, like(x, scale)), zero), name, hint="quantized"
    )


def _moved(b: Builder, name: str, scale: float, zero: int) -> str | None:
    """The bytes of what moves or compares elements, made of bytes; None where that would be more work."""
    writer = next((node for node in reversed(b.nodes) if node.output == b.resolve(name)), None)
    if writer is None:
        return None
    alike = all((as_bytes(b, source) or ())[1:] == (scale, zero) for source in writer.inputs)
    if not (keeps_values(writer.op) if alike else isinstance(writer.op, View | Transpose | Concat)):
        return None
    sources = [quantized_twin(b, source, scale, zero) for source in writer.inputs]
    return b.emit(writer.op, *sources, hint="integers")
