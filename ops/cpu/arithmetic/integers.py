"""Integer and boolean functions of the expression language; nothing here traps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.arithmetic.functions.scalar_math import int_power
from brickrt.ops.cpu.arithmetic.functions.vector_math import lanes_of
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I64, fill, vector
from brickrt.ops.definitions.elementwise_functions import WHOLE

BUILDER = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "and": "and_",
    "or": "or_",
    "xor": "xor",
    "bitand": "and_",
    "bitor": "or_",
    "bitxor": "xor",
    "not": "not_",
    "bitnot": "not_",
    "neg": "neg",
}


def apply(f: FunctionEmitter, fn: str, dtype: np.dtype, args: Sequence[ir.Value]) -> ir.Value:
    """A function of operands of one integer type or bool, except comparisons, max and min."""
    if fn in BUILDER:
        return getattr(f.b, BUILDER[fn])(*args)
    if fn in WHOLE:
        return args[0]
    if fn not in FUNCTIONS:
        raise ValueError(f"{fn} is not defined for {dtype.name}")
    return FUNCTIONS[fn](f, dtype.kind == "i", *args)


def power(f: FunctionEmitter, base: np.dtype, exponent: np.dtype, x: ir.Value, y: ir.Value) -> ir.Value:
    """x^y modulo the base's width; a negative exponent gives the reciprocal truncated to -1, 0 or 1."""
    wide_x, wide_y = _widen(f, base, x), _widen(f, exponent, y)
    whole = int_power(f, wide_x, wide_y)
    if exponent.kind == "i":
        whole = f.b.select(
            f.b.icmp_signed("<", wide_y, fill(wide_y.type, 0)), _reciprocal_power(f, wide_x, wide_y), whole
        )
    return f.b.trunc(whole, x.type) if x.type != whole.type else whole


def _widen(f: FunctionEmitter, dtype: np.dtype, x: ir.Value) -> ir.Value:
    kind = vector(I64, lanes_of(x))
    if x.type == kind:
        return x
    return (f.b.sext if dtype.kind == "i" else f.b.zext)(x, kind)


def _reciprocal_power(f: FunctionEmitter, x: ir.Value, y: ir.Value) -> ir.Value:
    one, minus_one = fill(x.type, 1), fill(x.type, -1)
    odd = f.b.icmp_signed("!=", f.b.and_(y, one), fill(y.type, 0))
    of_minus_one = f.b.select(odd, minus_one, one)
    result = f.b.select(f.b.icmp_signed("==", x, minus_one), of_minus_one, fill(x.type, 0))
    return f.b.select(f.b.icmp_signed("==", x, one), one, result)


def _safe_divisor(f: FunctionEmitter, signed: bool, x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(y, or 1 where dividing by y would trap; whether y is 0)."""
    zero = f.b.icmp_unsigned("==", y, fill(y.type, 0))
    bad = zero
    if signed:
        least = f.b.icmp_unsigned("==", x, fill(x.type, -(1 << (_width(x) - 1))))
        bad = f.b.or_(zero, f.b.and_(least, f.b.icmp_unsigned("==", y, fill(y.type, -1))))
    return f.b.select(bad, fill(y.type, 1), y), zero


def _width(x: ir.Value) -> int:
    return (x.type.element if isinstance(x.type, ir.VectorType) else x.type).width


def _divide(f: FunctionEmitter, signed: bool, x: ir.Value, y: ir.Value) -> ir.Value:
    """Truncates; 0 where the divisor is."""
    divisor, zero = _safe_divisor(f, signed, x, y)
    quotient = f.b.sdiv(x, divisor) if signed else f.b.udiv(x, divisor)
    return f.b.select(zero, fill(x.type, 0), quotient)


def _remainder(f: FunctionEmitter, signed: bool, x: ir.Value, y: ir.Value) -> ir.Value:
    """With the sign of the dividend; 0 where the divisor is."""
    divisor, _ = _safe_divisor(f, signed, x, y)
    return f.b.srem(x, divisor) if signed else f.b.urem(x, divisor)


def _modulo(f: FunctionEmitter, signed: bool, x: ir.Value, y: ir.Value) -> ir.Value:
    """With the sign of the divisor; 0 where the divisor is."""
    rest = _remainder(f, signed, x, y)
    if not signed:
        return rest
    zero = fill(x.type, 0)
    opposite = f.b.icmp_signed("<", f.b.xor(rest, y), zero)
    wrong = f.b.and_(opposite, f.b.icmp_signed("!=", rest, zero))
    return f.b.select(wrong, f.b.add(rest, y), rest)


def _shift_left(f: FunctionEmitter, signed: bool, x: ir.Value, count: ir.Value) -> ir.Value:
    fits = f.b.icmp_unsigned("<", count, fill(count.type, _width(x)))
    shifted = f.b.shl(x, f.b.select(fits, count, fill(count.type, 0)))
    return f.b.select(fits, shifted, fill(x.type, 0))


def _shift_right(f: FunctionEmitter, signed: bool, x: ir.Value, count: ir.Value) -> ir.Value:
    """Signs fill from the left; a count of the width or more leaves nothing but signs."""
    fits = f.b.icmp_unsigned("<", count, fill(count.type, _width(x)))
    if signed:
        return f.b.ashr(x, f.b.select(fits, count, fill(count.type, _width(x) - 1)))
    shifted = f.b.lshr(x, f.b.select(fits, count, fill(count.type, 0)))
    return f.b.select(fits, shifted, fill(x.type, 0))


def _absolute(f: FunctionEmitter, signed: bool, x: ir.Value) -> ir.Value:
    return f.b.select(f.b.icmp_signed("<", x, fill(x.type, 0)), f.b.neg(x), x) if signed else x


def _sign(f: FunctionEmitter, signed: bool, x: ir.Value) -> ir.Value:
    zero, one = fill(x.type, 0), fill(x.type, 1)
    nonzero = f.b.select(f.b.icmp_unsigned("!=", x, zero), one, zero)
    return f.b.select(f.b.icmp_signed("<", x, zero), fill(x.type, -1), nonzero) if signed else nonzero


def _reciprocal(f: FunctionEmitter, signed: bool, x: ir.Value) -> ir.Value:
    return _divide(f, signed, fill(x.type, 1), x)


FUNCTIONS: dict[str, Callable[..., ir.Value]] = {
    "div": _divide,
    "mod": _modulo,
    "fmod": _remainder,
    "shl": _shift_left,
    "shr": _shift_right,
    "abs": _absolute,
    "sign": _sign,
    "reciprocal": _reciprocal,
}
