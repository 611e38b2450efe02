"""Rounding float32 to unsigned bytes, as QuantizeLinear does: without the instructions that round and convert.

A float near 1.5 · 2²³ has units as its last binary digit: adding that number rounds half to even, and leaves the
integer in the lowest bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.arithmetic.functions.vector_math import lanes_of
from brickrt.ops.cpu.arithmetic.open_constants import OpenConst
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I8, I16, I32, fill, vector, zeros
from brickrt.ops.cpu.isa import AVX2_LANES
from brickrt.ops.expr import Apply, Const, Expr

F32, U8 = np.dtype(np.float32), np.dtype(np.uint8)
UNITS = 1.5 * 2.0**23
LARGEST = 255
PACKS = {
    16: ("llvm.x86.avx512.packssdw.512", "llvm.x86.avx512.packuswb.512"),
    AVX2_LANES: ("llvm.x86.avx2.packssdw", "llvm.x86.avx2.packuswb"),
}
"""Instructions that pack 32-bit integers to 16 bits and these to unsigned bytes, by lanes; both saturate."""


Zero: TypeAlias = int | OpenConst
"""A zero point, which the code knows or reads."""


def rounded_byte(expr: Apply) -> tuple[Expr, Zero | Apply] | None:
    """x and z where the expression is min(max(round(x) + z, 0), 255) as an unsigned byte, with 0 ≤ z ≤ 255: a constant,
    or an unsigned byte as a float."""
    match expr:
        case Apply(
            dtype=dtype,
            fn="cast",
            args=(Apply(fn="min", args=(Apply(fn="max", args=(value, Const(value=0))), Const(value=255))),),
        ) if dtype == U8 and value.dtype == F32:
            match value:
                case Apply(fn="round", args=(x,)):
                    return x, 0
                case Apply(fn="add", args=(Apply(fn="round", args=(x,)), Const(value=z))) if 0 <= z <= LARGEST:
                    return (x, int(z)) if z == int(z) else None
                case Apply(fn="add", args=(Apply(fn="round", args=(x,)), OpenConst(scale=False, least=0.0) as zero)):
                    return x, zero
                case Apply(fn="add", args=(Apply(fn="round", args=(x,)), Apply(fn="cast", args=(z,)) as shift)):
                    return (x, shift) if z.dtype == U8 else None
    return None


def zero_vector(f: FunctionEmitter, kind: ir.Type, zero: Zero) -> ir.Value:
    """A zero point in every lane of a type of floats or of integers, up to 32 bits."""
    element, lanes = (kind.element, kind.count) if isinstance(kind, ir.VectorType) else (kind, 1)
    if isinstance(zero, int):
        return fill(kind, float(zero) if element == FLOAT else zero)
    if element == FLOAT:
        return zero.emit(f, lanes)
    integers = zero.integer(f, lanes)
    return integers if element == I32 else f.b.trunc(integers, kind)


def store_byte(f: FunctionEmitter, x: ir.Value, zero: Zero) -> ir.Value:
    """min(max(round(x) + zero, 0), 255) of float32; 0 for NaN."""
    if isinstance(zero, OpenConst):
        return store_shifted_byte(f, x, zero_vector(f, x.type, zero), zero_vector(f, vector(I8, lanes_of(x)), zero))
    byte = _rounded(f, x, fill(x.type, float(-zero)), fill(x.type, float(LARGEST - zero)))
    return f.b.add(byte, fill(byte.type, zero)) if zero else byte


def store_shifted_byte(f: FunctionEmitter, x: ir.Value, zero: ir.Value, byte: ir.Value) -> ir.Value:
    """The same of a zero point that is computed: as a float, and as the byte that it is."""
    return f.b.add(_rounded(f, x, f.b.fneg(zero), f.b.fsub(fill(x.type, float(LARGEST)), zero)), byte)


def _rounded(f: FunctionEmitter, x: ir.Value, low: ir.Value, high: ir.Value) -> ir.Value:
    """The lowest eight bits of x, rounded between two integers. The bits of floats above 0 are in the floats' order;
    as integers they have the lesser one found by units that do not add floats."""
    kind = vector(I32, lanes_of(x))
    x = f.b.select(f.b.fcmp_ordered(">", x, low), x, low)
    bits, most = (f.b.bitcast(f.b.fadd(value, fill(x.type, UNITS)), kind) for value in (x, high))
    return f.b.trunc(f.b.select(f.b.icmp_signed("<", bits, most), bits, most), vector(I8, lanes_of(x)))


def store_four(f: FunctionEmitter, values: Sequence[ir.Value], zero: Zero, bounded: bool = False) -> ir.Value:
    """`store_byte` of up to four vectors of 16 or 8, one behind the other: packing them saturates, so of their bounds
    only the upper one is applied before, which keeps integers from overflowing, as those of `bounded` values do not
    (AVX-512, AVX2). The last of fewer than four comes again."""
    b, lanes = f.b, values[0].type.count
    wide, halves = vector(I32, lanes), vector(I16, 2 * lanes)
    signed, unsigned = PACKS[lanes]
    if not bounded:
        most = _largest(f, values[0].type, zero)
        values = [b.select(b.fcmp_ordered("<", most, x), most, x) for x in values]  # NaN stays, and becomes 0
    integers = [_to_integers(f, x) for x in values]
    last = len(values) - 1
    firsts = range(0, len(values), 2)
    pairs = [f.intrinsic(signed, halves, integers[k], integers[min(k + 1, last)]) for k in firsts]
    if zero != 0:
        shift = zero_vector(f, halves, zero)
        pairs = [f.intrinsic(f"llvm.sadd.sat.v{2 * lanes}i16", halves, pair, shift) for pair in pairs]
    packed = b.bitcast(f.intrinsic(unsigned, vector(I8, 4 * lanes), pairs[0], pairs[-1]), wide)
    in_order = [4 * part + k for k in range(4) for part in range(lanes // 4)]  # words of four bytes of each vector
    return b.bitcast(f.shuffle(packed, packed, in_order), vector(I8, 4 * lanes))


def _largest(f: FunctionEmitter, kind: ir.Type, zero: Zero) -> ir.Value:
    """The largest integer that is a byte when the zero point has been added."""
    if isinstance(zero, int):
        return fill(kind, float(LARGEST - zero))
    return f.b.fsub(fill(kind, float(LARGEST)), zero_vector(f, kind, zero))


def _to_integers(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """The nearest integers, to even on a tie."""
    wide = vector(I32, x.type.count)
    if x.type.count == AVX2_LANES:
        return f.intrinsic("llvm.x86.avx.cvt.ps2dq.256", wide, x)
    all_lanes, current = I16(-1), I32(4)
    return f.intrinsic("llvm.x86.avx512.mask.cvtps2dq.512", wide, x, zeros(wide), all_lanes, current)


def less_zero(expr: Apply) -> tuple[Apply, Zero] | None:
    """x and z where the expression is an unsigned byte x as a float, less an integer z."""
    match expr:
        case Apply(fn="sub", args=(Apply(fn="cast", args=(x,)) as byte, OpenConst(scale=False) as zero)) if (
            x.dtype == U8
        ):
            return (byte, zero) if expr.dtype == F32 else None
        case Apply(fn="sub", args=(Apply(fn="cast", args=(x,)) as byte, Const(value=z))) if x.dtype == U8:
            return (byte, int(z)) if expr.dtype == F32 and abs(z) <= LARGEST and z == int(z) else None
    return None
