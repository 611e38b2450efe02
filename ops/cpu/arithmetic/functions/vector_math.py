"""float32 exp, log, tanh, erf and sigmoid on vectors of any lane count, as straight-line IR.

Arguments and results are `float` or `<n x float>`; an element has the same bits in a vector of any length, as all are
computed in the processor's own. Errors stay below 2 ulp (3 for tanh and sigmoid) over the whole
range; infinities and NaN behave as in C. Powers and sigmoids that would be subnormal are 0: to compute them takes a
processor ten times as long, far below what a float32 can tell from 0 beside anything else. Polynomials are weighted
minimax fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TypeAlias

from llvmlite import ir

from brickrt.ops.cpu.arithmetic.functions.erf_table import erf_by_table
from brickrt.ops.cpu.arithmetic.functions.exp_table import LN2_HIGH, LN2_LOW, LOG2E, exp_by_table, sigmoid_by_table
from brickrt.ops.cpu.arithmetic.functions.table_lookup import LANES
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I32, fill, vector
from brickrt.ops.cpu.isa import AVX2_LANES

Function: TypeAlias = Callable[[FunctionEmitter, ir.Value], ir.Value]
# Added to a small float, this leaves the nearest whole number in the low bits.
ROUNDER = 12582912.0
ROUNDER_BITS = 0x4B400000
MANTISSA_BITS = 23
SIGMOID_SCALE = -64
LEAST_NORMAL = -87.33654  # whose power is above 2^-126
# Bits of the float just above sqrt(1/2): mantissas are taken from there up to sqrt(2).
SQRT_HALF_BITS = 0x3F3504F3

EXPM1 = (0.5, 0.166665181517601, 0.04166620597243309, 0.008368954993784428, 0.0013950599823147058)
LOG1P = (
    0.33333316445350647,
    -0.25000810623168945,
    0.2000228613615036,
    -0.16624552011489868,
    0.1418120115995407,
    -0.1312878429889679,
    0.1288158893585205,
    -0.07859456539154053,
)
# erf(x)/x - 1 in x² below ERF_SPLIT, (1 - erf(x)) ** (-1/8) in x above, up to ERF_TOP, where erf is 1.
ERF_SPLIT, ERF_TOP = 1.2, 4.0
ERF_SMALL = (
    0.128379152,
    -0.376125376,
    0.112826854,
    -0.0268201678,
    0.00513126944,
    -0.000756216318,
    6.52732278e-05,
)
ERF_LARGE = (
    0.989095062,
    0.190600237,
    -0.00695116183,
    0.129188658,
    -0.0652858169,
    0.0288372906,
    -0.00608599707,
    0.000708815861,
)


def lanes_of(x: ir.Value) -> int:
    """Lanes of a vector; 1 of a scalar."""
    return x.type.count if isinstance(x.type, ir.VectorType) else 1


def in_whole_vectors(function: Function) -> Function:
    """The function computed in vectors as long as the processor's: those of other lengths have other formulas."""

    @wraps(function)
    def computed(f: FunctionEmitter, x: ir.Value) -> ir.Value:
        lanes, whole = lanes_of(x), f.isa.lanes if f.isa else lanes_of(x)
        if lanes == whole:
            return function(f, x)
        if lanes == 1:
            alone = f.b.insert_element(ir.Constant(vector(FLOAT, whole), ir.Undefined), x, I32(0))
            return f.b.extract_element(function(f, alone), I32(0))
        starts = range(0, lanes, whole)
        parts = [function(f, f.shuffle(x, x, [min(at + k, lanes - 1) for k in range(whole)])) for at in starts]
        found = parts[0]
        for k, part in enumerate(parts[1:], 1):
            found = f.shuffle(found, f.shuffle(part, part, [*range(whole)] * k), range(whole * (k + 1)))
        return found if lanes == whole * len(parts) else f.shuffle(found, found, range(lanes))

    return computed


@in_whole_vectors
def exp(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """e^x; above 89 it is infinite."""
    return _exp_above(f, at_most(f, x, 89.0))


def _exp_above(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """exp(x) for x ≤ 89."""
    above = at_least(f, x, LEAST_NORMAL)
    if lanes_of(x) == LANES:
        return _nothing_below(f, x, exp_by_table(f, above))
    whole, fraction = reduce_exponent(f, above)
    half = f.b.ashr(whole, fill(whole.type, 1))  # 2^whole may be out of range where the result is not
    power = power_of_two(f, half)
    found = f.b.fmul(f.fma(expm1_reduced(f, fraction), power, power), power_of_two(f, f.b.sub(whole, half)))
    return _nothing_below(f, x, found)


def _nothing_below(f: FunctionEmitter, x: ir.Value, value: ir.Value) -> ir.Value:
    """The value, or 0 where x is below what has a normal power."""
    return f.b.select(f.b.fcmp_ordered("<", x, fill(x.type, LEAST_NORMAL)), fill(x.type, 0.0), value)


@in_whole_vectors
def sigmoid(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """1/(1 + e), e = exp(-x). All is scaled by a power of two, so that nothing overflows; where e is not in reach, it
    makes no difference."""
    above = at_least(f, x, LEAST_NORMAL)
    if lanes_of(x) == LANES:
        return _nothing_below(f, x, sigmoid_by_table(f, at_most(f, above, 104.5)))
    whole, fraction = reduce_exponent(f, at_most(f, above, 43.0), negated=True)
    power = power_of_two(f, whole, SIGMOID_SCALE)
    scale = fill(x.type, 2.0**SIGMOID_SCALE)
    found = f.b.fdiv(scale, f.b.fadd(scale, f.fma(expm1_reduced(f, fraction), power, power)))
    return _nothing_below(f, x, found)


@in_whole_vectors
def tanh(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """y/(y + 2) with y = exp(2|x|) - 1, which keeps its relative accuracy near 0."""
    double = at_most(f, f.b.fmul(_abs(f, x), fill(x.type, 2.0)), 20.0)
    whole, fraction = reduce_exponent(f, double)
    power = power_of_two(f, whole)
    y = f.fma(expm1_reduced(f, fraction), power, f.b.fsub(power, fill(x.type, 1.0)))
    return with_sign(f, f.b.fdiv(y, f.b.fadd(y, fill(x.type, 2.0))), x)


@in_whole_vectors
def erf(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """The error function: a polynomial near 0, 1 less the eighth power of a reciprocal above ERF_SPLIT, which is so
    little there that errors of the power do not matter."""
    if lanes_of(x) == LANES:
        return erf_by_table(f, x)
    one, size = fill(x.type, 1.0), at_most(f, _abs(f, x), ERF_TOP)
    square = f.b.fmul(size, size)
    small = f.fma(size, horner(f, square, ERF_SMALL), size)
    power = f.fma(horner(f, square, ERF_LARGE[1::2]), size, horner(f, square, ERF_LARGE[::2]))
    for _ in range(3):
        power = f.b.fmul(power, power)
    is_small = f.b.fcmp_ordered("<", size, fill(x.type, ERF_SPLIT))
    return with_sign(f, f.b.select(is_small, small, f.b.fsub(one, f.b.fdiv(one, power))), x)


@in_whole_vectors
def log(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """ln x, of exponent and mantissa, which is taken from √½ to √2."""
    subnormal = f.b.fcmp_ordered("<", x, fill(x.type, 2.0**-126))
    normal = f.b.select(subnormal, f.b.fmul(x, fill(x.type, 2.0**23)), x)
    shift = f.b.select(subnormal, fill(x.type, -23.0), fill(x.type, 0.0))
    bits = _bits(f, normal)
    above = f.b.sub(bits, fill(bits.type, SQRT_HALF_BITS))
    exponent = f.b.fadd(f.b.sitofp(f.b.ashr(above, fill(bits.type, MANTISSA_BITS)), x.type), shift)
    mantissa = f.b.and_(above, fill(bits.type, (1 << MANTISSA_BITS) - 1))
    m = f.b.fsub(_from_bits(f, f.b.add(mantissa, fill(bits.type, SQRT_HALF_BITS))), fill(x.type, 1.0))
    return _log_edges(f, x, _log1p_scaled(f, m, exponent))


def _log1p_scaled(f: FunctionEmitter, m: ir.Value, exponent: ir.Value) -> ir.Value:
    """ln(1 + m) + exponent·ln 2, the large terms last."""
    square = f.b.fmul(m, m)
    cubic = f.b.fmul(f.b.fmul(square, m), polynomial(f, m, LOG1P))
    small = f.fma(exponent, fill(m.type, LN2_LOW), cubic)
    small = f.fma(square, fill(m.type, -0.5), small)
    return f.fma(exponent, fill(m.type, LN2_HIGH), f.b.fadd(m, small))


def _log_edges(f: FunctionEmitter, x: ir.Value, inside: ir.Value) -> ir.Value:
    infinity, zero = fill(x.type, float("inf")), fill(x.type, 0.0)
    finite = f.b.fcmp_ordered("<", x, infinity)
    # Infinity and NaN are their own logarithms.
    result = f.b.select(finite, inside, x)
    result = f.b.select(f.b.fcmp_ordered("<", x, zero), fill(x.type, float("nan")), result)
    return f.b.select(f.b.fcmp_ordered("==", x, zero), fill(x.type, float("-inf")), result)


def polynomial(f: FunctionEmitter, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """Coefficients from the constant term up. By Horner's rule, or by vectors of eight lanes by Estrin's, in which
    operations wait less for each other: a core that does another one's work beside it looks few of them ahead."""
    if lanes_of(x) == AVX2_LANES:
        return _in_pairs(f, x, [fill(x.type, c) for c in coefficients])
    return horner(f, x, coefficients)


def horner(f: FunctionEmitter, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """The same by Horner's rule, which rounds least."""
    acc: ir.Value = fill(x.type, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        acc = f.fma(acc, x, fill(x.type, c))
    return acc


def _in_pairs(f: FunctionEmitter, x: ir.Value, terms: list[ir.Value]) -> ir.Value:
    """The sum of terms times powers of x: pairs of them are terms of the sum by powers of x²."""
    while len(terms) > 1:
        rest = terms[len(terms) // 2 * 2 :]
        terms = [f.fma(high, x, low) for low, high in zip(terms[::2], terms[1::2], strict=False)] + rest
        x = f.b.fmul(x, x) if len(terms) > 1 else x
    return terms[0]


def reduce_exponent(f: FunctionEmitter, x: ir.Value, negated: bool = False) -> tuple[ir.Value, ir.Value]:
    """(n, r): x, or -x if `negated`, is n·ln 2 + r with n an i32 and |r| ≤ ln 2 / 2; a NaN comes back in r."""
    rounder, sign = fill(x.type, ROUNDER), -1 if negated else 1
    shifted = f.fma(x, fill(x.type, sign * LOG2E), rounder)
    negative = f.b.fsub(rounder, shifted)
    high = f.fma(negative, fill(x.type, sign * LN2_HIGH), x)
    r = f.fma(negative, fill(x.type, LN2_LOW), f.b.fneg(high) if negated else high)
    bits = _bits(f, shifted)
    return f.b.sub(bits, fill(bits.type, ROUNDER_BITS)), r


def expm1_reduced(f: FunctionEmitter, r: ir.Value) -> ir.Value:
    """exp(r) - 1 for |r| ≤ ln 2 / 2."""
    return f.fma(f.b.fmul(r, r), polynomial(f, r, EXPM1), r)


def power_of_two(f: FunctionEmitter, n: ir.Value, more: int = 0) -> ir.Value:
    """2^(n + more) for sums from -126 to 127."""
    biased = f.b.add(n, fill(n.type, 127 + more))
    return _from_bits(f, f.b.shl(biased, fill(n.type, MANTISSA_BITS)))


def at_most(f: FunctionEmitter, x: ir.Value, top: float) -> ir.Value:
    """min(x, top); NaN stays."""
    limit = fill(x.type, top)
    return f.b.select(f.b.fcmp_ordered("<", limit, x), limit, x)


def at_least(f: FunctionEmitter, x: ir.Value, bottom: float) -> ir.Value:
    """max(x, bottom); NaN stays."""
    limit = fill(x.type, bottom)
    return f.b.select(f.b.fcmp_ordered(">", limit, x), limit, x)


def _abs(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    return f.math("fabs", x)


def with_sign(f: FunctionEmitter, size: ir.Value, sign: ir.Value) -> ir.Value:
    """A size with the sign of another value."""
    return f.math("copysign", size, sign)


def _bits(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    return f.b.bitcast(x, vector(I32, lanes_of(x)))


def _from_bits(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    return f.b.bitcast(x, vector(FLOAT, lanes_of(x)))
