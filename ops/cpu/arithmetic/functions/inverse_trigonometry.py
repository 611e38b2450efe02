"""float32 arc sine, arc cosine and arc tangent on vectors of any lane count, as straight-line IR.

Errors stay below 2.5 ulp of the arc sine, 1.5 of the others. Polynomials are weighted minimax fits in the square of an
argument that is brought near 0 before. All is done in each lane alone, by Horner's rule, so an element has the same
bits in a vector of any length.
"""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.arithmetic.functions.vector_math import horner, with_sign
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import fill

# (asin(r)/r - 1)/r² in r², up to 1/2, and (atan(r)/r - 1)/r² up to 1.
ASIN = (0.166667521, 0.0749529749, 0.0454703756, 0.0241795145, 0.0421663076)
ATAN = (
    -0.333331525,
    0.199937731,
    -0.142110556,
    0.106660046,
    -0.0755221397,
    0.0432118587,
    -0.0163679272,
    0.00292069186,
)
# The parts of π/2: the first is a float, the second what it lacks.
HALF_PI = (1.5707963705062866, -4.371138828673793e-08)


def asin(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """The arc sine; NaN beyond 1."""
    size = f.math("fabs", x)
    near, found = _folded(f, size)
    return with_sign(f, f.b.select(near, found, _less(f, HALF_PI, f.b.fadd(found, found))), x)


def acos(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """The arc cosine; NaN beyond 1. Next to -1 and 1 it is twice the arc sine of what is left to them."""
    near, found = _folded(f, f.math("fabs", x))
    twice, signed = f.b.fadd(found, found), with_sign(f, found, x)
    negative = f.b.fcmp_ordered("<", x, fill(x.type, 0.0))
    pi = (2 * HALF_PI[0], 2 * HALF_PI[1])
    return f.b.select(near, _less(f, HALF_PI, signed), f.b.select(negative, _less(f, pi, twice), twice))


def atan(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """The arc tangent: beyond 1, what the reciprocal's lacks to π/2."""
    size = f.math("fabs", x)
    beyond = f.b.fcmp_ordered(">", size, fill(x.type, 1.0))
    r = f.b.select(beyond, f.b.fdiv(fill(x.type, 1.0), size), size)
    found = _odd(f, r, f.b.fmul(r, r), ATAN)
    return with_sign(f, f.b.select(beyond, _less(f, HALF_PI, found), found), x)


def _folded(f: FunctionEmitter, size: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Whether a size is at most 1/2, and its arc sine there; else that of √((1 - size)/2), half the arc cosine."""
    half = fill(size.type, 0.5)
    near = f.b.fcmp_ordered("<=", size, half)
    square = f.b.select(near, f.b.fmul(size, size), f.fma(size, fill(size.type, -0.5), half))
    r = f.b.select(near, size, f.math("sqrt", square))
    return near, _odd(f, r, square, ASIN)


def _odd(f: FunctionEmitter, r: ir.Value, square: ir.Value, coefficients: tuple[float, ...]) -> ir.Value:
    """r + r³·(polynomial in r²)."""
    return f.fma(f.b.fmul(r, square), horner(f, square, coefficients), r)


def _less(f: FunctionEmitter, whole: tuple[float, float], x: ir.Value) -> ir.Value:
    """A constant in two parts, less x."""
    return f.b.fsub(fill(x.type, whole[0]), f.b.fsub(x, fill(x.type, whole[1])))
