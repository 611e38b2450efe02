"""Comparisons and casts of register values."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.arithmetic.functions.vector_math import lanes_of
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, HALVES, fill, register_type, vector
from brickrt.ops.expr import BOOL
from brickrt.ops.types import is_floating


def compare(f: FunctionEmitter, relation: str, dtype: np.dtype, x: ir.Value, y: ir.Value) -> ir.Value:
    """i1 lanes; a comparison with NaN is false, except !=."""
    if is_floating(dtype):
        return f.b.fcmp_unordered("!=", x, y) if relation == "!=" else f.b.fcmp_ordered(relation, x, y)
    return f.b.icmp_signed(relation, x, y) if dtype.kind == "i" else f.b.icmp_unsigned(relation, x, y)


def convert(f: FunctionEmitter, x: ir.Value, source: np.dtype, target: np.dtype) -> ir.Value:
    """A cast between register types: floats to integers truncate and saturate, integers wrap, not 0 is true."""
    if source == target:
        return x
    if target == BOOL:
        return compare(f, "!=", source, x, ir.Constant(x.type, None))
    if is_floating(source) and is_floating(target):
        return _float_to_float(f, x, target)
    if is_floating(source):
        return _float_to_int(f, x, target)
    kind = vector(register_type(target), lanes_of(x))
    if is_floating(target):
        number = (f.b.sitofp if source.kind == "i" else f.b.uitofp)(x, kind)
        return f.rounded(number, target, lanes_of(x)) if target in HALVES else number
    if target.itemsize == source.itemsize and source != BOOL:
        return x
    if target.itemsize < source.itemsize:
        return f.b.trunc(x, kind)
    return (f.b.sext if source.kind == "i" else f.b.zext)(x, kind)


def _float_to_float(f: FunctionEmitter, x: ir.Value, target: np.dtype) -> ir.Value:
    kind = vector(register_type(target), lanes_of(x))
    if kind != x.type:
        x = f.b.fpext(x, kind) if target.itemsize == 8 else f.b.fptrunc(x, kind)
    return f.rounded(x, target, lanes_of(x)) if target in HALVES else x


def _float_to_int(f: FunctionEmitter, x: ir.Value, target: np.dtype) -> ir.Value:
    """Narrow types and uint32 go through a wider signed type and wrap, as NumPy does."""
    if target == np.uint64:
        below = f.b.fcmp_ordered("<", x, ir.Constant(x.type, None))
        return f.b.select(below, _saturate(f, "fptosi", x, 64), _saturate(f, "fptoui", x, 64))
    width = 64 if target.itemsize == 8 or target == np.uint32 else 32
    whole = _saturate(f, "fptosi", x, width)
    return f.b.trunc(whole, vector(register_type(target), lanes_of(x))) if 8 * target.itemsize < width else whole


def _saturate(f: FunctionEmitter, name: str, x: ir.Value, width: int) -> ir.Value:
    """The nearest integer towards 0, the last one for what is beyond, 0 for what is no number. LLVM's own saturating
    casts take the lanes of a vector one by one; its plain ones are undefined for what does not fit."""
    signed, whole = name == "fptosi", vector(ir.IntType(width), lanes_of(x))
    least, beyond = (-(2.0 ** (width - 1)), 2.0 ** (width - 1)) if signed else (0.0, 2.0**width)
    number = np.float32 if FLOAT in (x.type, getattr(x.type, "element", None)) else np.float64
    low, most, too_much = (fill(x.type, float(v)) for v in (least, np.nextafter(number(beyond), number(0)), beyond))
    inside = f.b.select(f.b.fcmp_ordered(">", x, low), x, low)
    inside = f.b.select(f.b.fcmp_ordered("<", inside, most), inside, most)
    found = (f.b.fptosi if signed else f.b.fptoui)(inside, whole)
    found = f.b.select(f.b.fcmp_ordered(">=", x, too_much), fill(whole, int(beyond) - 1), found)
    return f.b.select(f.b.fcmp_unordered("uno", x, x), fill(whole, 0), found) if signed else found
