"""F(4, 3) in integers, exact: the points 0, ±1, ±2 and ∞, each row of G times a number that makes it whole.

    Bᵀ   4  0 -5  0  1  0    G·s   1  0  0   s = 4    A = Aᵀ/s times 24, and less what its rows have in common:
         0 -4 -4  1  1  0          1  1  1      -6
         0  4 -4 -1  1  0          1 -1  1      -6      6 -4 -4  1  1  0    24 of an output
         0 -2 -1  2  1  0          1  2  4      24      0 -2  2  1 -1  0    12
         0  2 -1 -2  1  0          1 -2  4      24      0 -1 -1  1  1  0     6
         0  4  0 -5  0  1          0  0  1       1      0 -1  1  2 -2  6     6

Of two dimensions, transformed bytes are at most 10²·255 and weights 7²·128: both are 16-bit integers, of which an
instruction multiplies and adds pairs. Sums wrap to 32 bits, and so do outputs times 24², 3² of which has an inverse
modulo 2³²; a shift takes off the other 2⁶, which is exact where outputs are below 2²⁵. That is known of the weights.
(Lavin and Gray, "Fast algorithms for convolutional neural networks", CVPR 2016, have the points.)
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import fill
from brickrt.ops.cpu.winograd.axes import Axis

SHIFTS = (3, 2, 1, 1)  # the powers of two in what each of four outputs is multiplied with; 3 is left of all
THIRD = pow(3, -1, 1 << 32)


def input_rows(f: FunctionEmitter, d: Sequence[ir.Value], axis: Axis) -> list[ir.Value]:
    """Bᵀ d for six vectors; as they are along an axis that is not tiled."""
    if axis.m == 1:
        return list(d)
    b = f.b
    four_first, four_second = times(f, d[1], 4), times(f, d[2], 4)
    even, odd = b.sub(d[4], four_second), b.sub(d[3], four_first)
    far_even, far_odd = b.sub(d[4], d[2]), times(f, b.sub(d[3], d[1]), 2)
    return [
        b.add(b.sub(times(f, d[0], 4), d[2]), even),
        b.add(even, odd),
        b.sub(even, odd),
        b.add(far_even, far_odd),
        b.sub(far_even, far_odd),
        b.add(b.sub(four_first, d[3]), b.sub(d[5], times(f, d[3], 4))),
    ]


def weight_rows(f: FunctionEmitter, w: Sequence[ir.Value], axis: Axis) -> list[ir.Value]:
    """G w, times `s`: six vectors of three."""
    if axis.m == 1:
        return list(w)
    b = f.b
    even, far_even, far_odd = b.add(w[0], w[2]), b.add(w[0], times(f, w[2], 4)), times(f, w[1], 2)
    near = b.add(even, w[1]), b.sub(even, w[1])
    return [w[0], *near, b.add(far_even, far_odd), b.sub(far_even, far_odd), w[2]]


def output_rows(f: FunctionEmitter, s: Sequence[ir.Value], axis: Axis) -> list[ir.Value]:
    """A s: four vectors of six, each times 3 and two to the power of its shift (`SHIFTS`)."""
    if axis.m == 1:
        return list(s)
    b = f.b
    near, near_odd = b.add(s[1], s[2]), b.sub(s[2], s[1])
    far, far_odd = b.add(s[3], s[4]), b.sub(s[3], s[4])
    first = b.add(times(f, b.sub(s[0], near), 4), b.add(far, times(f, s[0], 2)))
    last = b.add(times(f, far_odd, 2), b.add(times(f, s[5], 4), times(f, s[5], 2)))
    return [first, b.add(times(f, near_odd, 2), far_odd), b.sub(far, near), b.add(near_odd, last)]


def back(f: FunctionEmitter, value: ir.Value, place: Sequence[int], axes: Sequence[Axis]) -> ir.Value:
    """An output, of what `output_rows` give along both axes for a `place` in its tile."""
    tiled = [(at, axis) for at, axis in zip(place, axes, strict=True) if axis.m > 1]
    inverse = pow(THIRD, len(tiled), 1 << 32)
    signed = inverse - (1 << 32) if inverse >= 1 << 31 else inverse
    return f.b.ashr(f.b.mul(value, fill(value.type, signed)), fill(value.type, sum(SHIFTS[at] for at, _ in tiled)))


def times(f: FunctionEmitter, value: ir.Value, power: int) -> ir.Value:
    """A value times a power of two."""
    return f.b.shl(value, fill(value.type, power.bit_length() - 1))
