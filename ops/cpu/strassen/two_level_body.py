"""The code of `TwoLevelStrassenKernel`: per chunk of K the first factors, then group by group of columns seven rounds.

A round is a product of the first level. It adds a state, four tiles of sums, to what the seven products of the second
level give, and leaves another; four rounds end one quarter of the group's outputs each:

    round            1    2    3    4    5    6    7        z zeros, a = U2 (first P1), b = U3, q what is finished
    product          P1   P2   P6   P7   P4   P5   P3
    adds             z    a    a    a    b    z    q
    leaves           a    q    a    b    q    q    q
    finishes with         z              z    b    a
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import I64, Index
from brickrt.ops.cpu.strassen.frame import Masks, SevenProducts, StrassenFrame
from brickrt.ops.cpu.strassen.row_ranges import mixed_matrices
from brickrt.ops.cpu.strassen.sizes import PRODUCTS, part_rows
from brickrt.ops.cpu.strassen.two_level_scheme import TwoLevelStrassenScheme

A, B, Q, ZERO = 0, 1, 2, 3
ADDS = (ZERO, A, A, A, B, ZERO, Q)
LEAVES = (A, Q, A, B, Q, Q, Q)
FINISHES = (False, True, False, False, True, True, True)
WITH = (ZERO, ZERO, ZERO, ZERO, ZERO, B, A)
LOWER, RIGHT = (0, 0, 0, 0, 1, 1, 0), (0, 0, 0, 0, 0, 1, 1)  # the quarter that a round ends


@dataclass(frozen=True)
class Round:
    """Group `group` of columns of the matrix at `corner` in chunk `chunk` of K, product `number` of the first level;
    `b` are its factors."""

    corner: list[Index]
    chunk: Index
    first: Index  # of the box's groups
    group: Index
    number: ir.Value
    b: ir.Value


class TwoLevelStrassenBody(StrassenFrame):
    """Emits two levels of Strassen's scheme."""

    k: TwoLevelStrassenScheme

    # ---- loops

    def emit(self) -> None:
        """Matrices, chunks of K, groups of columns, rounds."""
        f, k = self.f, self.k
        groups = self.groups()
        self.clear(k.zeros_at, k.tile_elements)
        with mixed_matrices(self) as corner, f.loop(0, k.chunks) as chunk:
            self.first_factors(corner, chunk, self.factors(chunk, groups[0], 0))
            with f.loop(*groups) as g, f.loop(0, PRODUCTS) as number:
                b = self.factors(chunk, g, number)
                self.round(Round(corner, chunk, groups[0], g, f.value(number), b))

    def factors(self, chunk: Index, group: Index, number: Index) -> ir.Value:
        """Address of the seven panels of a product of the first level."""
        f, k = self.f, self.k
        groups = -(-k.columns // self.group)
        at = f.add(f.mul(f.add(f.mul(chunk, groups), group), PRODUCTS), number)
        return f.address(self.b, f.mul(at, PRODUCTS * k.panel), self.dtype)

    def round(self, at: Round) -> None:
        """All tiles of rows, which find the panels in L2."""
        for start, repeat, count in self.k.tiles.runs:
            with self.f.loop(0, repeat) as r:
                RowTile(self, at, self.f.add(start, self.f.mul(r, count)), count).emit()

    def masks(self, column: Index) -> Masks:
        """Masks of the blocks of a tile of columns."""
        whole = not self.k.ragged and self.k.columns % self.group == 0
        starts = [self.f.add(column, j * self.k.lanes) for j in range(self.blocks)]
        return [None if whole else self.inside(start) for start in starts]


class RowTile(SevenProducts):
    """`count` rows from `start` of every part on, in one round."""

    k: TwoLevelStrassenScheme
    looped = True

    def __init__(self, body: TwoLevelStrassenBody, at: Round, start: Index, count: int) -> None:
        super().__init__(body, start, count, at.b, body.f.mul(at.number, PRODUCTS))
        self.body, self.at = body, at
        self.elements = count * body.width
        self.bases: dict[tuple[int, ...], tuple[Index, Index]] = {w: self.base(w) for w in (ADDS, LEAVES, WITH)}

    def emit(self) -> None:
        """The seven products of the second level, and in rounds that end a quarter its outputs."""
        finishes = self.f.pick([int(x) for x in FINISHES], self.at.number)
        finishing = self.f.b.icmp_signed("!=", self.f.value(finishes), I64(0))
        with self.f.when(finishing), self.outputs() as (lower, right):
            self.prefetch(lower, right)
        self.products()
        with self.f.when(finishing), self.outputs() as (lower, right):
            self.finish(lower, right)

    def later(self) -> ir.Value:
        """The panels of the next round."""
        return self.f.address(self.at.b, PRODUCTS * self.k.panel, self.body.dtype)

    # ---- the state

    def begin(self, tile: int) -> None:
        """Adds the state to the tiles that only pass it on."""
        if tile < 3:
            self.add(self.state(ADDS, tile))

    def leave(self, tile: int, plus: Index | None = None) -> None:
        """Writes the state that later rounds read."""
        leaves = self.state(LEAVES, tile)
        if plus is None:
            self.spill(leaves)
            return
        more, adds, made = self.tile(plus), self.tile(self.state(ADDS, tile)), self.tile(leaves)
        for j, t in self.each():
            value = self.f.b.fadd(self.load(more, j, t), self.acc.value(j, t))
            self.store(self.f.b.fadd(self.load(adds, j, t), value), made, j, t)

    def state(self, which: tuple[int, ...], tile: Index) -> Index:
        """Where a tile of the state that a round reads or writes lies; of zeros there is one for all."""
        f = self.f
        at, moves = self.bases[which]
        inside = f.add(f.mul(tile, self.elements), f.mul(self.start, 4 * self.body.width))
        return f.add(at, f.mul(moves, inside))

    def base(self, which: tuple[int, ...]) -> tuple[Index, Index]:
        """Where the state of this round begins, and whether it has a place for each tile."""
        k = self.k
        starts = [k.zeros_at if s == ZERO else k.states_at + s * k.state_elements for s in which]
        pick = self.f.pick
        return pick(starts, self.at.number), pick([int(s != ZERO) for s in which], self.at.number)

    # ---- outputs

    @contextmanager
    def outputs(self) -> Iterator[tuple[Index, Index]]:
        """Which of the four tiles of a quarter: lower and right."""
        with self.f.loops([(0, 2), (0, 2)]) as (lower, right):
            yield lower, right

    def rows(self, lower: Index) -> Index:
        """Rows of the tile that are there, of the upper or lower part of this round's quarter."""
        f, k = self.f, self.k
        there = [part_rows(k.rows, k.levels)[2 * half : 2 * half + 2] for half in (0, 1)]
        of_half = [self.f.pick([there[half][n] for half in LOWER], self.at.number) for n in (0, 1)]
        upper = f.b.icmp_signed("==", f.value(lower), I64(0))
        count = f.b.select(upper, f.value(of_half[0]), f.value(of_half[1]))
        return f.minimum(self.count, f.sub(count, self.start))

    def place(self, lower: Index, right: Index) -> tuple[Index, Index]:
        """Row and column of the matrix at which a tile begins."""
        f, k = self.f, self.k
        half = self.f.pick([n * -(-k.rows // 2) for n in LOWER], self.at.number)
        row = f.add(half, f.mul(lower, k.part_rows), self.start)
        tile = f.add(f.mul(self.at.group, 4), f.mul(self.f.pick(RIGHT, self.at.number), 2), right)
        return row, f.mul(tile, self.body.width)

    def prefetch(self, lower: Index, right: Index) -> None:
        """Prefetches the lines that the outputs go to."""
        row, column = self.place(lower, right)
        with self.f.loop(0, self.rows(lower)) as t:
            for j in range(self.body.blocks):
                self.body.epilogue.prefetch(self.body.out, self.index(self.f.add(row, t), column, j))

    def finish(self, lower: Index, right: Index) -> None:
        """Outputs of a tile: partial sums for later chunks, or finished and stored."""
        f, k = self.f, self.k
        tile = f.add(f.mul(lower, 2), right)
        made, more = self.tile(self.state(LEAVES, tile)), self.tile(self.state(WITH, tile))
        row, column = self.place(lower, right)
        masks = self.body.masks(column)
        partial = self.tile(self.partial(lower, right))
        with f.loop(0, self.rows(lower)) as t:
            values = [f.b.fadd(self.load(made, j, t), self.load(more, j, t)) for j in range(self.body.blocks)]
            if k.chunks == 1:
                self.put(values, f.add(row, t), column, masks)
                return
            last = f.b.icmp_signed("==", f.value(self.at.chunk), f.value(k.chunks - 1))
            first = f.b.icmp_signed("==", f.value(self.at.chunk), I64(0))
            sums = [f.b.fadd(self.load(partial, j, t), value) for j, value in enumerate(values)]
            sums = [f.b.select(first, value, s) for value, s in zip(values, sums, strict=True)]
            with f.b.if_else(last) as (ends, goes_on):
                with ends:
                    self.put(sums, f.add(row, t), column, masks)
                with goes_on:
                    for j, value in enumerate(sums):
                        self.store(value, partial, j, t)

    def put(self, values: Sequence[ir.Value], row: Index, column: Index, masks: Masks) -> None:
        """Stores a row's vectors of outputs."""
        for j, value in enumerate(values):
            self.body.put(value, self.index(row, column, j), masks[j])

    def index(self, row: Index, column: Index, j: int) -> list[Index]:
        """Index in the output of a vector."""
        return self.body.view.index(self.f, self.at.corner, row, self.f.add(column, j * self.k.lanes))

    def partial(self, lower: Index, right: Index) -> Index:
        """Where the sums of earlier chunks lie: group by group, quarter by quarter, then as states do."""
        f, k = self.f, self.k
        quarter = self.f.pick([2 * n + m for n, m in zip(LOWER, RIGHT, strict=True)], self.at.number)
        whole = f.add(f.mul(f.sub(self.at.group, self.at.first), 4), quarter)
        tile = f.add(f.mul(f.add(f.mul(lower, 2), right), self.elements), f.mul(self.start, 4 * self.body.width))
        return f.add(k.partial_at, f.mul(whole, k.state_elements), tile)
