"""exp of sixteen float32 lanes: 2^(n/16) for whole n from a table that a permutation of registers looks up, times a
cubic, since what is left is at most ln 2 / 32. The relative error stays below 1 ulp, subnormal results included."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.arithmetic.functions.table_lookup import FLOATS, LANES, WORDS, look_up
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I16, I32, fill

# Added to a small float, this leaves the nearest multiple of 1/16 in the low bits.
ROUNDER = 786432.0
LOG2E = 1.4426950408889634
# ln 2 in two parts; the first has so few bits that its product with a whole number below 2^9 is exact.
LN2_HIGH, LN2_LOW = 0.693145751953125, 1.4286068203094172e-06
# A float times which all powers of the table are floats but for a quarter of their last place; so small that sigmoid's
# denominator does not overflow where its result is subnormal.
SCALE = 1.1502646207809448 * 2.0**-64
SQUARE, CUBE = 0.5000162, 1 / 6
CURRENT_ROUNDING = 4
_POWERS = [2 ** (k / LANES) for k in range(LANES)]


def exp_by_table(f: FunctionEmitter, x: ir.Value, scale: float = 1.0) -> ir.Value:
    """scale·exp(x) for x of <16 x float>, |x| ≤ 128, on processors with AVX-512."""
    shifted = f.fma(x, fill(FLOATS, LOG2E), fill(FLOATS, ROUNDER))
    exponent = f.b.fsub(shifted, fill(FLOATS, ROUNDER))
    rest = f.fma(exponent, fill(FLOATS, -LN2_LOW), f.fma(exponent, fill(FLOATS, -LN2_HIGH), x))
    power = look_up(f, [float(np.float32(scale * entry)) for entry in _POWERS], f.b.bitcast(shifted, WORDS))
    small = f.fma(f.b.fmul(rest, rest), f.fma(rest, fill(FLOATS, CUBE), fill(FLOATS, SQUARE)), rest)
    return _scale(f, f.fma(power, small, power), exponent)


def sigmoid_by_table(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """1/(1 + exp(-x)) for x of <16 x float>, |x| ≤ 128; all is scaled so that nothing overflows."""
    return f.b.fdiv(fill(FLOATS, SCALE), f.b.fadd(fill(FLOATS, SCALE), exp_by_table(f, f.b.fneg(x), SCALE)))


def _scale(f: FunctionEmitter, x: ir.Value, exponent: ir.Value) -> ir.Value:
    """x·2^n, n the largest whole number up to `exponent`, rounded once."""
    return f.intrinsic("llvm.x86.avx512.mask.scalef.ps.512", FLOATS, x, exponent, x, I16(-1), I32(CURRENT_ROUNDING))
