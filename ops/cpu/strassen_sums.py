"""The first factors of two levels of Strassen's scheme: 49 sums of sixteenths of a box's rows and a chunk of K."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from llvmlite import ir

from brickrt.ops.cpu.emit import FLOAT, Fn, Index, vector

if TYPE_CHECKING:
    from brickrt.ops.cpu.strassen_twice import StrassenTwiceKernel

LINE = 16  # elements of a cache line
ROWS_AHEAD = 4  # between the rows that are added and those asked for
MOST_ASKED = 8  # lines asked for while one vector of each factor is computed
Quarters = list[ir.Value]  # upper left, upper right, lower left, lower right


def sevenfold(f: Fn, quarters: Quarters) -> list[ir.Value]:
    """The first factors of one level, in the order in which the kernels multiply."""
    x11, x12, x21, x22 = quarters
    s1 = f.b.fadd(x21, x22)
    s2 = f.b.fsub(s1, x11)
    return [x11, x12, s2, f.b.fsub(x11, x21), x22, s1, f.b.fsub(x12, s2)]


@dataclass(frozen=True)
class FirstFactors:
    """Of the rows from address `a` on, to `work`; meanwhile the panels at `b`, which come first, are asked for."""

    k: StrassenTwiceKernel
    f: Fn
    a: ir.Value
    work: ir.Value
    b: ir.Value

    def emit(self) -> None:
        """Rows that all four parts have, then those that some lack, which count as zero."""
        f, k = self.f, self.k
        there = part_rows(k.rows)
        steps = max(1, min(there) * k.part_depth // k.lanes)
        lines = min(MOST_ASKED, -(-7 * k.panel // (steps * LINE)))
        with f.loop(0, min(there)) as row, f.loop(0, k.part_depth, k.lanes) as c:
            step = f.mul(f.add(f.mul(row, k.part_depth // k.lanes), f.div(c, k.lanes)), lines * LINE)
            for n in range(lines):
                f.prefetch(self.b, f.add(step, n * LINE), k.out.dtype, near=False)
            self.vectors(row, c, [True] * 4)
        for row in range(min(there), k.part_rows):
            with f.loop(0, k.part_depth, k.lanes) as c:
                self.vectors(row, c, [row < n for n in there])

    def vectors(self, row: Index, c: Index, there: list[bool]) -> None:
        """One vector of each factor."""
        f, k = self.f, self.k
        half = -(-k.rows // 2)
        starts = [f.add(row, at) for at in (0, k.part_rows, half, half + k.part_rows)]
        for start, part in product(starts, range(4)):
            self.f.prefetch(self.a, self.place(f.add(start, ROWS_AHEAD), part, c), k.out.dtype, near=False)
        x = [[self.load(starts[i], j, c) if there[i] else self.zero for j in range(4)] for i in range(4)]
        outer = [sevenfold(f, [x[i][j], x[i][j + 2], x[i + 2][j], x[i + 2][j + 2]]) for i in (0, 1) for j in (0, 1)]
        at = f.add(f.mul(row, k.sum_stride), c)
        for n in range(7):
            for m, value in enumerate(sevenfold(f, [parts[n] for parts in outer])):
                f.store(value, self.work, f.add(at, (7 * n + m) * k.factor_elements), k.out.dtype, k.lanes)

    def load(self, row: Index, part: int, c: Index) -> ir.Value:
        return self.f.load(self.a, self.place(row, part, c), self.k.out.dtype, self.k.lanes)

    def place(self, row: Index, part: int, c: Index) -> Index:
        f, k = self.f, self.k
        return f.add(f.mul(row, k.ins[0].strides[-2]), part * k.part_depth, c)

    @property
    def zero(self) -> ir.Constant:
        return ir.Constant(vector(FLOAT, self.k.lanes), None)


def part_rows(rows: int) -> list[int]:
    """Rows that are there in each of the four parts of a box's rows, cut in halves twice."""
    half, part = -(-rows // 2), -(-rows // 4)
    starts = ((0, half), (part, half), (half, rows), (half + part, rows))
    return [min(part, max(0, end - start)) for start, end in starts]
