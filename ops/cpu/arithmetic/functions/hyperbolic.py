"""float32 hyperbolic sine and cosine and the inverses of both and of the hyperbolic tangent, on vectors of any lane
count. Errors stay below 2 ulp, 3 for the inverses, which are logarithms of 1 and something.
"""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.arithmetic.functions.vector_math import (
    at_most,
    expm1_reduced,
    horner,
    in_whole_vectors,
    log,
    power_of_two,
    reduce_exponent,
    with_sign,
)
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import fill

# (sinh(x)/x - 1)/x² in x², up to 1.
SINH = (0.166666672, 0.0083333496, 0.000198361595, 2.81695134e-06)
LARGEST_ARGUMENT = 90.0  # of sinh and cosh: they are infinite from there on
LN2 = 0.6931471805599453
FAR = 8192.0
"""From here on √(x² + 1) and √(x² - 1) are x, to the last bit."""


@in_whole_vectors
def sinh(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """A polynomial up to 1; beyond, half the exponential less half its reciprocal."""
    size = f.math("fabs", x)
    square = f.b.fmul(size, size)
    small = f.fma(f.b.fmul(square, size), horner(f, square, SINH), size)
    half, less = _halves(f, size)
    is_small = f.b.fcmp_ordered("<", size, fill(x.type, 1.0))
    return with_sign(f, f.b.select(is_small, small, f.b.fsub(half, less)), x)


@in_whole_vectors
def cosh(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """Half the exponential and half its reciprocal."""
    return f.b.fadd(*_halves(f, f.math("fabs", x)))


@in_whole_vectors
def asinh(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """ln(1 + s + s²/(1 + √(s² + 1))) of the size s; ln 2s far out."""
    one, size = fill(x.type, 1.0), f.math("fabs", x)
    square = f.b.fmul(size, size)
    root = f.math("sqrt", f.b.fadd(square, one))
    more = f.b.fadd(size, f.b.fdiv(square, f.b.fadd(root, one)))
    return with_sign(f, _log_of_sum(f, size, more), x)


@in_whole_vectors
def acosh(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """ln(1 + t + √(t(t + 2))) of t = x - 1; ln 2x far out; NaN below 1."""
    one = fill(x.type, 1.0)
    t = f.b.fsub(x, one)
    more = f.b.fadd(t, f.math("sqrt", f.b.fmul(t, f.b.fadd(t, fill(x.type, 2.0)))))
    below = f.b.fcmp_ordered("<", x, one)
    return f.b.select(below, fill(x.type, float("nan")), _log_of_sum(f, x, more))


@in_whole_vectors
def atanh(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """Half of ln(1 + 2s/(1 - s)) of the size s; NaN beyond 1."""
    size = f.math("fabs", x)
    more = f.b.fdiv(f.b.fadd(size, size), f.b.fsub(fill(x.type, 1.0), size))
    return with_sign(f, f.b.fmul(_log1p(f, more), fill(x.type, 0.5)), x)


def _halves(f: FunctionEmitter, size: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Half the exponential of a size, and half that of its negative."""
    whole, fraction = reduce_exponent(f, at_most(f, size, LARGEST_ARGUMENT))
    some = f.b.ashr(whole, fill(whole.type, 1))  # 2^whole may be out of range where the result is not
    power, rest = power_of_two(f, some), power_of_two(f, f.b.sub(whole, some), -1)
    half = f.b.fmul(f.fma(expm1_reduced(f, fraction), power, power), rest)
    return half, f.b.fdiv(fill(size.type, 0.25), half)


def _log_of_sum(f: FunctionEmitter, x: ir.Value, more: ir.Value) -> ir.Value:
    """ln(1 + more), or, where x is far out, ln 2x."""
    far = f.b.fcmp_ordered(">", x, fill(x.type, FAR))
    found = _log1p(f, f.b.select(far, f.b.fsub(x, fill(x.type, 1.0)), more))
    return f.b.select(far, f.b.fadd(found, fill(x.type, LN2)), found)


def _log1p(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """ln(1 + x): the logarithm of the sum as it is rounded, and what the rounding leaves over it."""
    y = f.b.fadd(x, fill(x.type, 1.0))
    left = f.b.fdiv(f.b.fsub(x, f.b.fsub(y, fill(x.type, 1.0))), y)
    finite = f.b.fcmp_ordered("<", y, fill(x.type, 2.0**30))  # else nothing is left over, or infinities are
    return f.b.select(finite, f.b.fadd(log(f, y), left), log(f, y))
