"""Magnitudes of float32 values as the integers that their bits are, in whose order infinity and then NaN come last.

Between two such integers lie 2²³ for each power of two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I32, Index, fill, type_suffix, vector, zeros

BITS = np.dtype(np.int32)
MANTISSA = 23  # bits
POWER = 1 << MANTISSA  # from a magnitude to twice it
NAN = (1 << 31) - 1  # the greatest of all, and all bits but the sign
EXPONENT_OF_ONE = 127
SPREAD = 4  # as a power of two, between values that are mixed: fast algorithms round in proportion to the largest
LARGEST_EXPONENT = 60  # of values whose sums of squares stay finite
FOUR = 4  # vectors that are folded into one at a time
Fold: TypeAlias = Callable[[ir.Value, ir.Value], ir.Value]


def nothing(lanes: int) -> ir.Value:
    """Zero, the least of all, in so many lanes."""
    return zeros(vector(I32, lanes))


def magnitudes(f: FunctionEmitter, values: ir.Value, kept: ir.Value) -> ir.Value:
    """Those of a vector of float32, where `kept` has the bits of `kept_lanes`; else zero."""
    return f.b.and_(f.b.bitcast(values, kept.type), kept)


def kept_lanes(lanes: int, count: int | None = None) -> ir.Value:
    """All bits but the sign in the first `count` lanes, by default in all."""
    kind = vector(I32, lanes)
    if count is None or count == lanes:
        return fill(kind, NAN)
    return ir.Constant(kind, [NAN if lane < count else 0 for lane in range(lanes)])


def lanes_before(f: FunctionEmitter, lanes: int, block: Index, count: int) -> ir.Value:
    """`kept_lanes` of those of block `block` that belong to the first `count` of all blocks."""
    whole, tail = divmod(count, lanes)
    if isinstance(block, int):
        return kept_lanes(lanes, min(lanes, max(0, count - block * lanes)))
    at_end = f.b.icmp_signed(">=", block, f.value(whole))
    beyond = f.b.icmp_signed(">", block, f.value(whole))
    end = f.b.select(beyond, nothing(lanes), kept_lanes(lanes, int(tail)))
    return f.b.select(at_end, end, kept_lanes(lanes))


def greater(f: FunctionEmitter, x: ir.Value, y: ir.Value) -> ir.Value:
    """The greater of two magnitudes, lane by lane."""
    return f.math("smax", x, y)


def lesser(f: FunctionEmitter, x: ir.Value, y: ir.Value) -> ir.Value:
    """The lesser of two magnitudes, lane by lane."""
    return f.math("smin", x, y)


def must_not_mix(f: FunctionEmitter, most: ir.Value, least: ir.Value) -> ir.Value:
    """Whether the greatest and the least of magnitudes are too far from each other, or sums would not stay finite."""
    apart = f.b.icmp_signed(">", f.b.sub(most, least), I32(SPREAD * POWER))
    return f.b.or_(apart, f.b.icmp_signed(">=", most, I32((EXPONENT_OF_ONE + LARGEST_EXPONENT) * POWER)))


def may_mix(f: FunctionEmitter, most: ir.Value, least: ir.Value) -> ir.Value:
    """Whether the greatest and the least of sums of squares, given as their bits, are near each other; NaN is not."""
    high, low = (f.b.bitcast(bits, FLOAT) for bits in (most, least))
    near = f.b.fcmp_ordered("<=", high, f.b.fmul(low, ir.Constant(FLOAT, 4.0**SPREAD)))
    return f.b.and_(near, f.b.fcmp_ordered("<", high, ir.Constant(FLOAT, 4.0**LARGEST_EXPONENT)))


def greatest_lane(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """The greatest of a vector's lanes."""
    return f.intrinsic(f"llvm.vector.reduce.smax.{type_suffix(x.type)}", I32, x)


def greatest_of_four(f: FunctionEmitter, four: Sequence[ir.Value], lanes: int) -> ir.Value:
    """The greatest lane of each of four vectors, <4 x i32>."""
    return fold_four(f, four, lanes, partial(greater, f))


def least_lane(f: FunctionEmitter, x: ir.Value) -> ir.Value:
    """The least of a vector's lanes."""
    return f.intrinsic(f"llvm.vector.reduce.smin.{type_suffix(x.type)}", I32, x)


def fold_four(f: FunctionEmitter, four: Sequence[ir.Value], lanes: int, fold: Fold) -> ir.Value:
    """The lanes of each of four vectors folded into one: in steps that leave 128 bits only when few are left."""
    starts = range(0, lanes, 4)

    def halved(x: ir.Value, y: ir.Value, low: Sequence[int]) -> ir.Value:
        return fold(f.shuffle(x, y, low), f.shuffle(x, y, [lane + 2 for lane in low]))

    low = [at + k for at in starts for k in (0, lanes, 1, lanes + 1)]
    first, second = (halved(four[n], four[n + 1], low) for n in (0, 2))
    each = halved(first, second, [at + k for at in starts for k in (0, 1, lanes, lanes + 1)])
    while lanes > 4:
        lanes //= 2
        each = fold(*(f.shuffle(each, each, range(at, at + lanes)) for at in (0, lanes)))
    return each
