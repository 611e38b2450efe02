"""Bytes looked up in a table of 256, in registers where the processor permutes bytes, else one by one in memory.

index   0…127: one permutation of the table's lower half    128…255: one of the upper half; the highest bit chooses
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I8, I32, I64, fill, vector
from brickrt.ops.cpu.isa import Isa

LARGEST_REGISTER_BYTES = 64
BYTE = np.dtype(np.uint8)

Lookup = Callable[[ir.Value], ir.Value]


def byte_lookup(f: FunctionEmitter, place: ir.Value, isa: Isa, lanes: int) -> Lookup:
    """What brings `lanes` bytes to those that uint8[256] at `place` has in their places. Called where the function
    begins."""
    if not isa.permutes_bytes or lanes == 1:
        return lambda index: _one_by_one(f, place, index, lanes)
    quarters = [f.load(place, LARGEST_REGISTER_BYTES * k, BYTE, LARGEST_REGISTER_BYTES) for k in range(4)]
    return lambda index: _permuted(f, quarters, index, lanes)


def _one_by_one(f: FunctionEmitter, place: ir.Value, index: ir.Value, lanes: int) -> ir.Value:
    def found(byte: ir.Value) -> ir.Value:
        return f.load(place, f.b.zext(byte, I64), BYTE)

    if lanes == 1:
        return found(index)
    result: ir.Value = fill(vector(I8, lanes), 0)
    for lane in range(lanes):
        result = f.b.insert_element(result, found(f.b.extract_element(index, I32(lane))), I32(lane))
    return result


def _permuted(f: FunctionEmitter, quarters: list[ir.Value], index: ir.Value, lanes: int) -> ir.Value:
    wide = f.shuffle(index, index, [k % lanes for k in range(LARGEST_REGISTER_BYTES)])
    kind = vector(I8, LARGEST_REGISTER_BYTES)
    halves = [
        f.intrinsic("llvm.x86.avx512.vpermi2var.qi.512", kind, low, wide, high)
        for low, high in (quarters[:2], quarters[2:])
    ]
    upper = f.b.icmp_signed("<", wide, fill(kind, 0))
    return f.shuffle(f.b.select(upper, *reversed(halves)), fill(kind, 0), range(lanes))
