"""The first factors of Strassen's scheme: 7 (two levels: 49) sums of parts of a box's rows and of a chunk of K."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, product

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.strassen.scheme import LINE, StrassenScheme
from brickrt.ops.cpu.strassen.sizes import part_rows, part_starts

ROWS_AHEAD = 8  # between the rows that are added and those prefetched
Matrix = Sequence[Sequence[ir.Value]]
Absent = Sequence[ir.Value | None]  # of each part whether it lacks a row; None where it does not


def sevenfold(f: FunctionEmitter, quarters: Sequence[ir.Value]) -> list[ir.Value]:
    """The first factors of one level, in the order in which the kernels multiply."""
    x11, x12, x21, x22 = quarters
    s1 = f.b.fadd(x21, x22)
    s2 = f.b.fsub(s1, x11)
    return [x11, x12, s2, f.b.fsub(x11, x21), x22, s1, f.b.fsub(x12, s2)]


def first_factors(f: FunctionEmitter, x: Matrix) -> list[ir.Value]:
    """The factors of parts x[row][column], ordered by the first level's product, then by the second's."""
    half = len(x) // 2
    if not half:
        return [x[0][0]]
    inner = [[(i, j), (i, j + half), (i + half, j), (i + half, j + half)] for i in range(half) for j in range(half)]
    factors = [sevenfold(f, [x[i][j] for i, j in places]) for places in inner]
    parts = [[[factors[i * half + j][n] for j in range(half)] for i in range(half)] for n in range(7)]
    return list(chain.from_iterable(first_factors(f, part) for part in parts))


@dataclass(frozen=True)
class FirstFactors:
    """Emits the first factors of a box's rows and a chunk of K, from address `a` on, to `work`. K has `left` elements
    from there on; beyond, it counts as zero. Meanwhile the panels at `b`, which are read first, are prefetched."""

    k: StrassenScheme
    f: FunctionEmitter
    a: ir.Value
    work: ir.Value
    b: ir.Value
    left: Index

    def emit(self) -> None:
        """The loop over what lies closer together is the inner one: K, or pixels."""
        f, k = self.f, self.k
        whole = k.whole_rows
        if k.view.rows_adjacent:
            with f.loop(0, k.part_depth, k.lanes) as c:
                with f.loop(0, whole) as row:
                    self.step(row, c)
                with f.loop(whole, k.part_rows) as row:
                    self.vectors(row, c, self.absent(row))
            return
        with f.loop(0, whole) as row, f.loop(0, k.part_depth, k.lanes) as c:
            self.step(row, c)
        with f.loop(whole, k.part_rows) as row, f.loop(0, k.part_depth, k.lanes) as c:
            self.vectors(row, c, self.absent(row))

    def absent(self, row: Index) -> list[ir.Value]:
        """Tells of each part whether it lacks a row."""
        f, there = self.f, part_rows(self.k.rows, self.k.levels)
        return [f.b.icmp_signed(">=", f.value(row), f.value(count)) for count in there]

    def step(self, row: Index, c: Index) -> None:
        """One vector of each factor, of rows that all parts have; prefetches panels and later rows."""
        f, k, lines = self.f, self.k, self.k.lines_ahead
        at = f.add(f.mul(row, k.part_depth // k.lanes), f.div(c, k.lanes))
        with f.loop(0, lines) as n:
            f.prefetch(self.b, f.mul(f.add(f.mul(at, lines), n), LINE), k.out.dtype, near=False)
        columns = self.columns(c)
        for start, column in product(self.rows(f.add(row, ROWS_AHEAD)), columns):
            f.prefetch(column, start, k.out.dtype, near=False)
        self.vectors(row, c, [None] * 2**k.levels)

    def norms(self, row: Index, c: Index, absent: Absent) -> None:
        """Adds the squares of one step to the norms of its rows; for a row that a part lacks, those of the first part.
        In a loop of its own, since sums in the midst of the factors make LLVM spill these."""
        f, k, dtype = self.f, self.k, self.k.out.dtype
        rows = self.rows(row)
        places = [k.norm_at(f, row, n) for n in range(len(rows))]
        sums = [f.variable(f.load(self.work, place, dtype, k.lanes)) for place in places]
        with f.loop(0, len(rows)) as part:
            at = f.add(c, f.mul(part, k.part_depth))
            column = f.address(self.a, k.view.depth_offset(f, at), dtype)
            mask = f.tail_mask(f.sub(self.left, at), k.lanes) if k.overhang else None
            for total, start, missing in zip(sums, rows, absent, strict=True):
                at = start if missing is None else f.b.select(missing, f.value(rows[0]), f.value(start))
                value = f.load(column, at, dtype, k.lanes, mask)
                f.change(total, f.fma(value, value, f.read(total)))
        for total, place in zip(sums, places, strict=True):
            f.store(f.read(total), self.work, place, dtype, k.lanes)

    def columns(self, c: Index) -> list[ir.Value]:
        """Addresses of element `c` of every part of K, in the first row."""
        f, k = self.f, self.k
        starts = [k.view.depth_offset(f, f.add(c, n * k.part_depth)) for n in range(2**k.levels)]
        return [f.address(self.a, start, k.out.dtype) for start in starts]

    def rows(self, row: Index) -> list[Index]:
        """Offsets of a row of every part of the rows."""
        f, k = self.f, self.k
        return [k.view.row_offset(f, f.add(row, start)) for start in part_starts(k.rows, k.levels)]

    def vectors(self, row: Index, c: Index, absent: Absent) -> None:
        """One vector of each factor; rows that a part lacks count as zero."""
        f, k = self.f, self.k
        columns, masks = self.columns(c), self.masks(c)
        x = [
            [
                f.load(column, start, k.out.dtype, k.lanes, self.there(mask, missing))
                for column, mask in zip(columns, masks, strict=True)
            ]
            for start, missing in zip(self.rows(row), absent, strict=True)
        ]
        to = f.address(self.work, f.add(f.mul(row, k.sum_stride), c), k.out.dtype)
        for n, value in enumerate(first_factors(f, x)):
            f.store(value, to, n * k.factor_elements, k.out.dtype, k.lanes)
        self.norms(row, c, absent)

    def there(self, mask: ir.Value | None, missing: ir.Value | None) -> ir.Value | None:
        """The lanes of a mask, none where a row is missing."""
        if missing is None:
            return mask
        row = self.f.splat(self.f.b.not_(missing), self.k.lanes)
        return row if mask is None else self.f.b.and_(mask, row)

    def masks(self, c: Index) -> list[ir.Value | None]:
        """What is there of the vectors at element `c` of the parts of K."""
        f, k = self.f, self.k
        if not k.overhang:
            return [None] * 2**k.levels
        starts = [f.add(c, n * k.part_depth) for n in range(2**k.levels)]
        return [f.tail_mask(f.sub(self.left, start), k.lanes) for start in starts]
