"""The rows of a product with paired elements of K: what they are multiplied by, and their copies in scratch.

A row whose length is not far from 1 as a power of two is multiplied by the one that makes it as long as the columns.
Others, and those that are not finite, are computed again by themselves (`strassen/direct_rows.py`), but for rows of
zeros, whose sums are multiplied by 0 in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import FLOAT, I1, I32, I64, Index
from brickrt.ops.cpu.emit.magnitudes import EXPONENT_OF_ONE
from brickrt.ops.cpu.paired.pairing import PERIOD, SIGNS
from brickrt.ops.cpu.paired.scheme import PairedScheme
from brickrt.ops.cpu.strassen.direct_rows import DirectRows
from brickrt.ops.cpu.strassen.frame import StrassenFrame


class PairedFrame(StrassenFrame):
    """The frame of a kernel with paired elements."""

    k: PairedScheme


LEAST, MOST = 2.0**-80, 2.0**100  # of sums of squares of rows that are scaled
MANTISSA = 23  # bits
WAYS = 4  # sums that are added up side by side

Factors: TypeAlias = Callable[[Index, int], tuple[ir.Value, ir.Value]]


@contextmanager
def scaled_matrices(body: PairedFrame) -> Iterator[list[Index]]:
    """Loop over the box's matrices: yields the index of each one's first output. After the body, rows that cannot be
    scaled are computed again."""
    f, k = body.f, body.k
    with f.loops(body.view.batches(f)) as batch:
        corner = body.view.corner(f, batch)
        yield corner
        with f.loop(0, k.rows) as row:
            norm = f.load(body.work, f.add(k.norms_at, row), body.dtype)
            suspect = f.b.or_(body.must_not_mix(), f.b.not_(in_range(body, norm)))
            with f.when(suspect), f.apart("again", row, *corner) as again:
                apart, (row, *place) = again
                again_directly(type(body)(k, apart), row, place)


def in_range(body: PairedFrame, norm: ir.Value) -> ir.Value:
    """Whether a row with this sum of squares is scaled; NaN is not in the range."""
    b = body.f.b
    low = b.fcmp_ordered(">=", norm, ir.Constant(FLOAT, LEAST))
    return b.and_(low, b.fcmp_ordered("<=", norm, ir.Constant(FLOAT, MOST)))


def again_directly(body: PairedFrame, row: Index, corner: Sequence[Index]) -> None:
    """The outputs of a row, unless it is of zeros and the weights are finite."""
    f = body.f
    direct = DirectRows(body, corner)
    some = f.b.icmp_signed("!=", direct.magnitude(row), I32(0))
    with f.when(f.b.or_(some, body.must_not_mix())):
        direct.row(row, I1(1))


class RowScales:
    """Emits the copies of all rows of a chunk of the matrix at `corner`; in the first chunk also what they are
    multiplied by."""

    def __init__(self, body: PairedFrame, corner: Sequence[Index], chunk: Index) -> None:
        self.body, self.f, self.k, self.chunk = body, body.f, body.k, chunk
        self.a = self.f.address(body.a, body.view.source(self.f, corner), body.dtype)
        self.first = self.f.mul(chunk, self.k.chunk_depth)

    def emit(self) -> None:
        """Row by row, so that the second look at one finds it in L1."""
        f, k = self.f, self.k
        with f.loop(0, k.rows) as row:
            start = k.view.row_offset(f, row)
            if k.chunks == 1:
                self.measure(row, start)
            else:
                with f.when(f.b.icmp_signed("==", f.value(self.chunk), I64(0))):
                    self.measure(row, start)
            self.copy(row, start)

    def put(self, value: ir.Value, at: Index, row: Index) -> None:
        """A number of a row."""
        self.f.store(value, self.body.work, self.f.add(at, row), self.body.dtype)

    def measure(self, row: Index, start: Index) -> None:
        """The row's sum of squares, what it is multiplied by, and what takes its sums back."""
        f, k = self.f, self.k

        def square(c: Index, _: int) -> tuple[ir.Value, ir.Value]:
            mask = f.tail_mask(f.sub(k.view.depth, c), k.lanes) if k.view.depth % k.lanes else None
            value = f.load(self.a, f.add(start, k.view.depth_offset(f, c)), self.body.dtype, k.lanes, mask)
            return value, value

        norm = self.summed(-(-k.view.depth // k.lanes), square)
        half = f.b.ashr(f.b.sub(f.b.ashr(f.b.bitcast(norm, I32), I32(MANTISSA)), I32(EXPONENT_OF_ONE)), I32(1))
        scale, back = (self.power(f.b.sub(I32(0), half), k.length), self.power(half, -k.length))
        fits = in_range(self.body, norm)
        self.put(norm, k.norms_at, row)
        self.put(f.b.select(fits, scale, ir.Constant(FLOAT, 0.0)), k.scales_at, row)
        self.put(f.b.select(fits, back, ir.Constant(FLOAT, 0.0)), k.returns_at, row)

    def power(self, exponent: ir.Value, more: int) -> ir.Value:
        """2 to the power of `exponent` and `more`."""
        f = self.f
        return f.b.bitcast(f.b.shl(f.b.add(exponent, I32(EXPONENT_OF_ONE + more)), I32(MANTISSA)), FLOAT)

    def summed(self, vectors: int, factors: Factors, unit: int = 1) -> ir.Value:
        """The sum of products over so many vectors of a row, a multiple of `unit`, WAYS at a time; for an element and
        the number of its vector in a unit, `factors` gives both factors."""
        f, k = self.f, self.k
        totals = [f.variable(self.body.zero) for _ in range(WAYS)]
        whole = vectors - vectors % WAYS
        for start, end, step in ((0, whole, WAYS), (whole, vectors, unit)):
            with f.loop(start, end, step) as n:
                for way, total in enumerate(totals[:step]):
                    both = factors(f.mul(f.add(n, way), k.lanes), way % unit)
                    f.change(total, f.fma(*both, f.read(total)))
        first, second, third, fourth = (f.read(total) for total in totals)
        return self.added(f.b.fadd(f.b.fadd(first, second), f.b.fadd(third, fourth)))

    def added(self, value: ir.Value) -> ir.Value:
        """The sum of a vector's lanes, half by half."""
        f, lanes = self.f, self.k.lanes
        while lanes > 1:
            lanes //= 2
            value = f.b.fadd(*(f.shuffle(value, value, range(at, at + lanes)) for at in (0, lanes)))
        return f.b.extract_element(value, I32(0))

    def copy(self, row: Index, start: Index) -> None:
        """The scaled row, and the sum of the products of its pairs."""
        f, k, dtype = self.f, self.k, self.body.dtype
        scale = f.splat(f.load(self.body.work, f.add(k.scales_at, row), dtype), k.lanes)
        to = f.address(self.body.work, f.mul(row, k.sum_stride), dtype)
        signs = [SIGNS[start : start + k.lanes] for start in range(0, PERIOD, k.lanes)]

        def pair(c: Index, number: int) -> tuple[ir.Value, ir.Value]:
            at = f.add(self.first, c)
            mask = f.tail_mask(f.sub(k.view.depth, at), k.lanes) if k.overhang else None
            place = f.add(start, k.view.depth_offset(f, at))
            value = f.b.fmul(f.load(self.a, place, dtype, k.lanes, mask), scale)
            f.store(value, to, c, dtype, k.lanes)
            return value, self.seconds(value, signs[number])

        self.put(self.summed(k.chunk_depth // k.lanes, pair, len(signs)), k.products_at, row)

    def seconds(self, value: ir.Value, signs: Sequence[int]) -> ir.Value:
        """The second elements of pairs in place of the first, times the pairs' signs, and 0 elsewhere."""
        f, lanes = self.f, len(signs)
        signed = ir.Constant(value.type, [float(sign) for sign in signs])
        return f.b.fmul(f.shuffle(value, value, [min(lane + 1, lanes - 1) for lane in range(lanes)]), signed)
