"""The first factors of Strassen's scheme: 7 (two levels: 49) sums of parts of a box's rows and of a chunk of K."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from llvmlite import ir

from brickrt.ops.cpu.emit import FLOAT, Fn, Index, vector

if TYPE_CHECKING:
    from brickrt.ops.cpu.strassen import StrassenKernel

LINE = 16  # elements of a cache line
ROWS_AHEAD = 4  # between the rows that are added and those asked for
MOST_ASKED = 8  # lines asked for while one vector of each factor is computed
Matrix = Sequence[Sequence[ir.Value]]


def sevenfold(f: Fn, quarters: Sequence[ir.Value]) -> list[ir.Value]:
    """The first factors of one level, in the order in which the kernels multiply."""
    x11, x12, x21, x22 = quarters
    s1 = f.b.fadd(x21, x22)
    s2 = f.b.fsub(s1, x11)
    return [x11, x12, s2, f.b.fsub(x11, x21), x22, s1, f.b.fsub(x12, s2)]


def first_factors(f: Fn, x: Matrix) -> list[ir.Value]:
    """Of parts x[row][column], the factors of the last level innermost."""
    half = len(x) // 2
    if not half:
        return [x[0][0]]
    inner = [[(i, j), (i, j + half), (i + half, j), (i + half, j + half)] for i in range(half) for j in range(half)]
    factors = [sevenfold(f, [x[i][j] for i, j in places]) for places in inner]
    parts = [[[factors[i * half + j][n] for j in range(half)] for i in range(half)] for n in range(7)]
    return list(chain.from_iterable(first_factors(f, part) for part in parts))


@dataclass(frozen=True)
class FirstFactors:
    """Of the rows and the chunk of K from address `a` on, to `work`; meanwhile the panels at `b`, which come first, are
    asked for."""

    k: StrassenKernel
    f: Fn
    a: ir.Value
    work: ir.Value
    b: ir.Value

    def emit(self) -> None:
        """Rows that all parts have, then those that some lack, which count as zero."""
        f, k = self.f, self.k
        there = part_rows(k.rows, k.levels)
        steps = max(1, min(there) * k.part_depth // k.lanes)
        lines = min(MOST_ASKED, -(-7 * k.panel // (steps * LINE)))
        with f.loop(0, min(there)) as row:
            rows = self.row_offsets(row, there)
            later = self.row_offsets(f.add(row, ROWS_AHEAD), there)
            with f.loop(0, k.part_depth, k.lanes) as c:
                step = f.mul(f.add(f.mul(row, k.part_depth // k.lanes), f.div(c, k.lanes)), lines * LINE)
                for n in range(lines):
                    f.prefetch(self.b, f.add(step, n * LINE), k.out.dtype, near=False)
                for at in chain.from_iterable(self.places(later, c)):
                    f.prefetch(self.a, at, k.out.dtype, near=False)
                self.vectors(row, rows, c, [True] * len(there))
        for row in range(min(there), k.part_rows):
            rows = self.row_offsets(row, there)
            with f.loop(0, k.part_depth, k.lanes) as c:
                self.vectors(row, rows, c, [row < n for n in there])

    def row_offsets(self, row: Index, there: Sequence[int]) -> list[Index]:
        """Of a row of every part of the rows."""
        starts = part_starts(self.k.rows, self.k.levels)
        return [self.k.view.row_offset(self.f, self.f.add(row, start)) for start in starts]

    def places(self, rows: Sequence[Index], c: Index) -> list[list[Index]]:
        """Offsets of a vector in every part, [part of the rows][part of K]."""
        f, k = self.f, self.k
        columns = [k.view.depth_offset(f, f.add(c, n * k.part_depth)) for n in range(2**k.levels)]
        return [[f.add(row, column) for column in columns] for row in rows]

    def vectors(self, row: Index, rows: Sequence[Index], c: Index, there: Sequence[bool]) -> None:
        """One vector of each factor."""
        f, k = self.f, self.k
        zero = ir.Constant(vector(FLOAT, k.lanes), None)
        x = [
            [f.load(self.a, place, k.out.dtype, k.lanes) if present else zero for place in places]
            for places, present in zip(self.places(rows, c), there, strict=True)
        ]
        at = f.add(f.mul(row, k.sum_stride), c)
        for n, value in enumerate(first_factors(f, x)):
            f.store(value, self.work, f.add(at, n * k.factor_elements), k.out.dtype, k.lanes)


def part_starts(rows: int, levels: int) -> list[int]:
    """Where the parts of a box's rows begin, which is cut in halves `levels` times."""
    starts = [0]
    for level in range(1, levels + 1):
        starts = [start + n * -(-rows // 2**level) for start in starts for n in (0, 1)]
    return starts


def part_rows(rows: int, levels: int) -> list[int]:
    """Rows that are there in each of the parts: all end where the halves that they are parts of do."""
    part, starts = -(-rows // 2**levels), part_starts(rows, levels)
    ends = [-(-rows // 2) if n < len(starts) // 2 else rows for n in range(len(starts))]
    return [min(part, max(0, end - start)) for start, end in zip(starts, ends, strict=True)]
