"""Tables of sixteen float32 values in a register, on processors with AVX-512."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I32

LANES = 16
FLOATS, WORDS = ir.VectorType(FLOAT, LANES), ir.VectorType(I32, LANES)


def look_up(f: FunctionEmitter, table: Sequence[float], number: ir.Value) -> ir.Value:
    """Per lane the entry of the table that the low four bits of `number` (<16 x i32>) count, by one permutation."""
    return f.intrinsic("llvm.x86.avx512.permvar.sf.512", FLOATS, ir.Constant(FLOATS, list(table)), number)
