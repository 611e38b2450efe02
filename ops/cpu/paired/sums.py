"""The instructions that add elements of K to a sum, by themselves or in pairs (`pairing.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.paired.pairing import SIGNS


def plus(
    f: FunctionEmitter, total: ir.Value, n: int, row: Callable[[int], ir.Value], weights: Mapping[int, ir.Value]
) -> ir.Value:
    """`total` with element `n` of a period, or with the pair that begins there.

    `row(n)` loads an element of a row into all lanes. Each is loaded once, as the second operand of an instruction,
    which may broadcast it from memory.
    """
    one, sign = row(n), SIGNS[n]
    if not sign:
        return f.fma(weights[n], one, total)
    two = row(n + 1)
    if sign > 0:
        return f.fma(f.b.fadd(weights[n + 1], one), f.b.fadd(weights[n], two), total)
    return f.fma(f.b.fneg(f.b.fsub(weights[n + 1], one)), f.b.fsub(weights[n], two), total)
