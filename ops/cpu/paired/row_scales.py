"""The rows of a product with paired elements of K: what they are multiplied by, and their copies in scratch.

A row whose length is not far from 1 as a power of two is multiplied by the one that makes it as long as the columns.
Squares of small rows are too small to be summed: these rows are measured again times a power of two. What is still not
in the range, and rows that are not finite, are computed again by themselves (`strassen/direct_rows.py`), but for rows
of zeros, whose sums are multiplied by 0 in the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import FLOAT, I1, I32, I64, Index, fill, zeros
from brickrt.ops.cpu.emit.magnitudes import EXPONENT_OF_ONE
from brickrt.ops.cpu.paired.pairing import PERIOD, SIGNS
from brickrt.ops.cpu.paired.scheme import PairedScheme
from brickrt.ops.cpu.strassen.direct_rows import DirectRows
from brickrt.ops.cpu.strassen.frame import StrassenFrame


class PairedFrame(StrassenFrame):
    """The frame of a kernel with paired elements."""

    k: PairedScheme


LEAST_NORM, MOST_NORM = 2.0**-80, 2.0**100  # of sums of squares of rows that are scaled as they are
ENLARGED_EXPONENT = 90  # of what smaller rows are multiplied by before they are squared
LEAST_ENLARGED = 2.0**-20  # of these sums of squares: rows of 2**-100 are multiplied by all that float32 holds
MANTISSA = 23  # bits
ROWS_AT_A_TIME = 4  # that are looked at side by side
ROW_BITS = ir.IntType(ROWS_AT_A_TIME)  # a bit for each of them


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
    """Whether rows with these sums of squares are scaled; NaN is not in the range."""
    b = body.f.b
    low = b.fcmp_ordered(">=", norm, fill(norm.type, LEAST_NORM))
    return b.and_(low, b.fcmp_ordered("<=", norm, fill(norm.type, MOST_NORM)))


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
        """Some rows at a time, so that the second look at them finds them in L1. After the last one it comes again."""
        f, k = self.f, self.k
        with f.loop(0, k.rows, ROWS_AT_A_TIME) as row:
            rows = [f.minimum(f.add(row, t), f.sub(k.rows, 1)) for t in range(ROWS_AT_A_TIME)]
            starts = [k.view.row_offset(f, each) for each in rows]
            if k.chunks == 1:
                self.measure(row, starts)
            else:
                with f.when(f.b.icmp_signed("==", f.value(self.chunk), I64(0))):
                    self.measure(row, starts)
            self.copy(row, rows, starts)

    def put(self, values: ir.Value, at: Index, row: Index) -> None:
        """A number of each of the rows."""
        self.f.store(values, self.body.work, self.f.add(at, row), self.body.dtype, ROWS_AT_A_TIME)

    def measure(self, row: Index, starts: Sequence[Index]) -> None:
        """The rows' sums of squares, what they are multiplied by, and what takes their sums back."""
        f, k = self.f, self.k
        norms, shift = f.variable(self.norms(starts)), f.variable(zeros(ir.VectorType(I32, ROWS_AT_A_TIME)))
        first = f.read(norms)
        small = f.b.fcmp_ordered("<", first, fill(first.type, LEAST_NORM))
        with f.when(f.b.icmp_unsigned("!=", f.b.bitcast(small, ROW_BITS), ROW_BITS(0))):
            second = self.norms(starts, 2.0**ENLARGED_EXPONENT)
            found = f.b.and_(small, f.b.fcmp_ordered(">=", second, fill(second.type, LEAST_ENLARGED)))
            f.change(norms, f.b.select(found, second, first))
            f.change(shift, f.b.select(found, fill(f.read(shift).type, 2 * ENLARGED_EXPONENT), f.read(shift)))
        sizes, shifts = f.read(norms), f.read(shift)
        bits = f.b.bitcast(sizes, shifts.type)
        exponents = f.b.sub(f.b.ashr(bits, fill(bits.type, MANTISSA)), fill(bits.type, EXPONENT_OF_ONE))
        exponents = f.b.sub(exponents, shifts)
        half = f.b.ashr(exponents, fill(bits.type, 1))
        scales, returns = self.power(f.b.neg(half), k.length), self.power(half, -k.length)
        fits, none = in_range(self.body, sizes), zeros(sizes.type)
        self.put(sizes, k.norms_at, row)
        self.put(f.b.select(fits, scales, none), k.scales_at, row)
        self.put(f.b.select(fits, returns, none), k.returns_at, row)

    def norms(self, starts: Sequence[Index], times: float | None = None) -> ir.Value:
        """The sums of squares of rows, perhaps of their elements `times` a number."""
        f, k = self.f, self.k
        totals = [f.variable(self.body.zero) for _ in starts]
        with f.loop(0, k.view.depth, k.lanes) as c:
            mask = f.tail_mask(f.sub(k.view.depth, c), k.lanes) if k.view.depth % k.lanes else None
            for start, total in zip(starts, totals, strict=True):
                value = f.load(self.a, f.add(start, k.view.depth_offset(f, c)), self.body.dtype, k.lanes, mask)
                if times is not None:
                    value = f.b.fmul(value, fill(value.type, times))
                f.change(total, f.fma(value, value, f.read(total)))
        return self.added([f.read(total) for total in totals])

    def power(self, exponents: ir.Value, more: int) -> ir.Value:
        """2 to the powers of `exponents` and `more`."""
        f, kind = self.f, exponents.type
        biased = f.b.add(exponents, fill(kind, EXPONENT_OF_ONE + more))
        return f.b.bitcast(f.b.shl(biased, fill(kind, MANTISSA)), ir.VectorType(FLOAT, kind.count))

    def added(self, vectors: Sequence[ir.Value]) -> ir.Value:
        """The sums of the lanes of ROWS_AT_A_TIME vectors, all added up in one order: always the first half and the
        second of what belongs to a vector."""
        f, size, held = self.f, self.k.lanes, 1  # lanes of each of so many vectors that lie in one
        while size > 1:
            size //= 2
            others = vectors[1::2] if len(vectors) > 1 else vectors
            held = held * (2 if len(vectors) > 1 else 1)
            halves = [[2 * size * n + lane + half for n in range(held) for lane in range(size)] for half in (0, size)]
            vectors = [
                f.b.fadd(*(f.shuffle(one, two, lanes) for lanes in halves))
                for one, two in zip(vectors[:: len(vectors) // len(others)], others, strict=True)
            ]
        return vectors[0]

    def copy(self, row: Index, rows: Sequence[Index], starts: Sequence[Index]) -> None:
        """The scaled rows, and the sums of the products of their pairs."""
        f, k, dtype = self.f, self.k, self.body.dtype
        scales = [f.splat(f.load(self.body.work, f.add(k.scales_at, each), dtype), k.lanes) for each in rows]
        to = [f.address(self.body.work, f.mul(each, k.sum_stride), dtype) for each in rows]
        totals = [f.variable(self.body.zero) for _ in rows]
        with f.loop(0, k.chunk_depth, max(PERIOD, k.lanes)) as period:
            for first in range(0, max(PERIOD, k.lanes), k.lanes):
                c = f.add(period, first)
                at = f.add(self.first, c)
                mask = f.tail_mask(f.sub(k.view.depth, at), k.lanes) if k.overhang else None
                signs = [SIGNS[(first + lane) % PERIOD] for lane in range(k.lanes)]
                for t, total in enumerate(totals):
                    place = f.add(starts[t], k.view.depth_offset(f, at))
                    value = f.b.fmul(f.load(self.a, place, dtype, k.lanes, mask), scales[t])
                    f.store(value, to[t], c, dtype, k.lanes)
                    f.change(total, f.fma(value, self.seconds(value, signs), f.read(total)))
        self.put(self.added([f.read(total) for total in totals]), k.products_at, row)

    def seconds(self, value: ir.Value, signs: Sequence[int]) -> ir.Value:
        """The second elements of pairs in place of the first, times the pairs' signs, and 0 elsewhere."""
        f, lanes = self.f, len(signs)
        signed = ir.Constant(value.type, [float(sign) for sign in signs])
        return f.b.fmul(f.shuffle(value, value, [min(lane + 1, lanes - 1) for lane in range(lanes)]), signed)
