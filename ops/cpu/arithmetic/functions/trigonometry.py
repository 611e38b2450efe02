"""float32 sine, cosine and tangent on vectors of any lane count, by Cody and Waite's reduction.

|x| is brought to within π/4 of a multiple of π/2, whose three parts are subtracted one after the other: the first
difference is exact. A polynomial for the sine or the cosine of what is left is chosen by the quadrant, the tangent is
the quotient of both. Errors stay below 1.6 ulp, the tangent's below 3.5. For elements above LARGEST_ARGUMENT,
infinities and NaN, which are rare, the C library is called. All is done in each lane alone, so an element has the same
bits in a vector of any length.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from brickrt.ops.cpu.arithmetic.functions.scalar_math import libm
from brickrt.ops.cpu.arithmetic.functions.vector_math import ROUNDER, horner, lanes_of
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I1, I32, fill, type_suffix, vector

LARGEST_ARGUMENT = 1e5
TWO_OVER_PI = 0.6366197466850281
# The parts of π/2: the first ones are rounded down.
HALF_PI = (1.570796251296997, 7.549789415861596e-08, 5.390302953474238e-15)
# (sin(r) - r)/r³ and (cos(r) - 1 + r²/2)/r⁴ in r², up to π/4.
SIN = (-0.16666653752326965, 0.008332141675055027, -0.00019512674771249294)
COS = (0.04166664555668831, -0.0013887290842831135, 2.443017547193449e-05)
SIGN_BIT = 31


def sin(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """The sine. That of -0 is -0."""
    return _with_far(f, "sin", x, _near_sin)


def cos(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """The cosine."""
    return _with_far(f, "cos", x, _near_cos)


def tan(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """The tangent. That of -0 is -0."""
    return _with_far(f, "tan", x, _near_tan)


def _near_sin(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    quadrant, r = _reduced(f, x)
    sign = f.b.and_(_bits(f, x), fill(quadrant.type, -(1 << SIGN_BIT)))
    return _of_quadrant(f, quadrant, r, sign)


def _near_cos(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """The sine a quadrant further on."""
    quadrant, r = _reduced(f, x)
    return _of_quadrant(f, f.b.add(quadrant, fill(quadrant.type, 1)), r, fill(quadrant.type, 0))


def _near_tan(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """In every second quadrant the negative cotangent of what is left."""
    quadrant, r = _reduced(f, x)
    sine, cosine = _sine_and_cosine(f, r)
    odd = _is_odd(f, quadrant)
    quotient = f.b.fdiv(f.b.select(odd, f.b.fneg(cosine), sine), f.b.select(odd, sine, cosine))
    sign = f.b.and_(_bits(f, x), fill(quadrant.type, -(1 << SIGN_BIT)))
    return f.b.bitcast(f.b.xor(_bits(f, quotient), sign), x.type)


def _reduced(f: FunctionEmitter, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """What multiple of π/2 |x| is next to, in the low bits of an integer, and how far it is from there."""
    size = f.math("fabs", x)
    shifted = f.fma(size, fill(x.type, TWO_OVER_PI), fill(x.type, ROUNDER))
    back = f.b.fsub(fill(x.type, ROUNDER), shifted)
    r = size
    for part in HALF_PI:
        r = f.fma(back, fill(x.type, part), r)
    return _bits(f, shifted), r


def _of_quadrant(f: FunctionEmitter, quadrant: ir.Value, r: ir.Value, sign: ir.Value) -> ir.Value:
    """The sine of r beyond so many quadrants, with bits of a sign that change its own."""
    sine, cosine = _sine_and_cosine(f, r)
    turned = f.b.shl(f.b.and_(quadrant, fill(quadrant.type, 2)), fill(quadrant.type, SIGN_BIT - 1))
    bits = f.b.xor(_bits(f, f.b.select(_is_odd(f, quadrant), cosine, sine)), f.b.xor(turned, sign))
    return f.b.bitcast(bits, r.type)


def _sine_and_cosine(f: FunctionEmitter, r: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Those of what is left."""
    square = f.b.fmul(r, r)
    sine = f.fma(f.b.fmul(square, r), horner(f, square, SIN), r)
    flat = f.fma(square, fill(r.type, -0.5), fill(r.type, 1.0))
    return sine, f.fma(f.b.fmul(square, square), horner(f, square, COS), flat)


def _is_odd(f: FunctionEmitter, quadrant: ir.Value) -> ir.Value:
    """Whether sine and cosine change places there."""
    return f.b.icmp_signed("!=", f.b.and_(quadrant, fill(quadrant.type, 1)), fill(quadrant.type, 0))


def _with_far(
    f: FunctionEmitter, name: str, x: ir.Value, near: Callable[[FunctionEmitter, ir.Value], ir.Value]
) -> ir.Value:
    """The C library's function in lanes that are far from 0 or no numbers, `near` in others."""
    far = f.b.fcmp_unordered(">", f.math("fabs", x), fill(x.type, LARGEST_ARGUMENT))
    found = f.variable(near(f, x))
    with f.when(_any(f, far)):
        f.change(found, f.b.select(far, libm(f, name, x), f.read(found)))
    return f.read(found)


def _any(f: FunctionEmitter, lanes: ir.Value) -> ir.Value:
    """Whether a condition holds in any lane."""
    if lanes_of(lanes) == 1:
        return lanes
    return f.intrinsic(f"llvm.vector.reduce.or.{type_suffix(lanes.type)}", I1, lanes)


def _bits(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    return f.b.bitcast(x, vector(I32, lanes_of(x)))
