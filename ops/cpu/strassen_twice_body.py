"""The code of `StrassenTwiceKernel`: per chunk of K the first factors, then group by group of columns seven rounds.

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
from typing import TYPE_CHECKING

from llvmlite import ir

from brickrt.ops.cpu.emit import FLOAT, I64, Fn, Index, vector
from brickrt.ops.cpu.kept_tile import KeptTile
from brickrt.ops.cpu.products import Accumulators, PackedStream
from brickrt.ops.cpu.strassen_sums import FirstFactors, part_rows
from brickrt.ops.cpu.tiles import sizes

if TYPE_CHECKING:
    from brickrt.ops.cpu.strassen_twice import StrassenTwiceKernel

PRODUCTS = 7
LINE = 16  # elements of a cache line
STATES = 3
A, B, Q, ZERO = 0, 1, 2, 3
ADDS = (ZERO, A, A, A, B, ZERO, Q)
LEAVES = (A, Q, A, B, Q, Q, Q)
FINISHES = (False, True, False, False, True, True, True)
WITH = (ZERO, ZERO, ZERO, ZERO, ZERO, B, A)
LOWER, RIGHT = (0, 0, 0, 0, 1, 1, 0), (0, 0, 0, 0, 0, 1, 1)  # which quarter
Masks = list[ir.Value] | None


@dataclass(frozen=True)
class Round:
    """Group `group` of columns in chunk `chunk` of K, product `number` of the first level; `b` are its factors."""

    batch: list[Index]
    row: Index
    chunk: Index
    first: Index  # of the box's groups
    group: Index
    number: ir.Value
    b: ir.Value


class StrassenTwiceBody:
    def __init__(self, kernel: StrassenTwiceKernel, f: Fn) -> None:
        self.k, self.f = kernel, f
        self.dtype = kernel.out.dtype
        self.out, self.a, self.b = (f.pointer(i) for i in range(3))
        self.bias = f.pointer(3) if kernel.op.bias else None
        self.epilogue = kernel.epilogue.bind(f)
        self.work = f.pointer(1 + len(kernel.ins))
        self.width = kernel.panel // kernel.part_depth
        self.blocks = self.width // kernel.lanes
        self.parts = sizes(kernel.part_rows, kernel.most) if kernel.rows else []

    # ---- loops

    def emit(self) -> None:
        f, k = self.f, self.k
        rank = k.out.type.rank
        first, last = f.box(rank - 1)
        group = 4 * self.width
        groups = f.div(first, group), f.div(f.add(last, group - 1), group)
        row = f.box(rank - 2)[0]
        self.clear()
        with f.loops([f.box(d) for d in range(rank - 2)]) as batch, f.loop(0, k.chunks) as chunk:
            self.first_factors(batch, row, chunk, self.factors(chunk, groups[0], 0))
            with f.loop(*groups) as g, f.loop(0, PRODUCTS) as number:
                b = self.factors(chunk, g, number)
                self.round(Round(batch, row, chunk, groups[0], g, f.value(number), b))

    def clear(self) -> None:
        f, k = self.f, self.k
        with f.loop(0, k.tile_elements, k.lanes) as i:
            f.store(self.zero, self.work, f.add(i, k.zeros_at), self.dtype, k.lanes)

    @property
    def zero(self) -> ir.Constant:
        return ir.Constant(vector(FLOAT, self.k.lanes), None)

    def factors(self, chunk: Index, group: Index, number: Index) -> ir.Value:
        """Address of the seven panels of a product of the first level."""
        f, k = self.f, self.k
        groups = -(-k.columns // (4 * self.width))
        at = f.add(f.mul(f.add(f.mul(chunk, groups), group), PRODUCTS), number)
        return f.address(self.b, f.mul(at, PRODUCTS * k.panel), self.dtype)

    def first_factors(self, batch: list[Index], row: Index, chunk: Index, b: ir.Value) -> None:
        f, operand = self.f, self.k.ins[0]
        strides = [0 if e == 1 else s for e, s in zip(operand.shape[:-2], operand.strides, strict=False)]
        strides = [0] * (len(batch) - len(strides)) + strides
        depth = 4 * self.k.part_depth
        start = f.add(f.dot(batch, strides), f.mul(row, operand.strides[-2]), f.mul(chunk, depth))
        FirstFactors(self.k, f, f.address(self.a, start, self.dtype), self.work, b).emit()

    def round(self, at: Round) -> None:
        """All tiles of rows, which find the panels in L2."""
        start = 0
        for count in dict.fromkeys(self.parts):
            repeat = self.parts.count(count)
            with self.f.loop(0, repeat) as r:
                RowTile(self, at, self.f.add(start, self.f.mul(r, count)), count).emit()
            start += repeat * count

    def pick(self, values: Sequence[int], number: ir.Value) -> Index:
        """values[number]"""
        if len(set(values)) == 1:
            return values[0]
        found = self.f.value(values[-1])
        for k, value in enumerate(values[:-1]):
            found = self.f.b.select(self.f.b.icmp_signed("==", number, I64(k)), I64(value), found)
        return found

    def masks(self, column: Index) -> Masks:
        """Per block of a tile the lanes that belong to the box; None where all always do."""
        f, k = self.f, self.k
        if not k.ragged and k.columns % (4 * self.width) == 0:
            return None
        lo, hi = f.box(k.out.type.rank - 1)
        hi = f.minimum(hi, k.columns)
        starts = [f.add(column, j * k.lanes) for j in range(self.blocks)]
        ends = [f.tail_mask(f.sub(hi, start), k.lanes) for start in starts]
        if not k.ragged:
            return ends
        befores = [f.tail_mask(f.sub(lo, start), k.lanes) for start in starts]
        return [f.b.and_(end, f.b.not_(before)) for end, before in zip(ends, befores, strict=True)]


class RowTile(KeptTile):
    """`count` rows from `start` of every part on, in one round."""

    def __init__(self, body: StrassenTwiceBody, at: Round, start: Index, count: int) -> None:
        acc = Accumulators.create(body.f, [body.zero] * body.blocks, count, body.dtype, body.k.lanes)
        super().__init__(acc, body.work)
        self.body, self.k, self.at = body, body.k, at
        self.start, self.count = start, count
        self.tile = count * body.width

    def emit(self) -> None:
        finishes = self.body.pick([int(x) for x in FINISHES], self.at.number)
        finishing = self.f.b.icmp_signed("!=", self.f.value(finishes), I64(0))
        with self.f.when(finishing), self.outputs() as (lower, right):
            self.request(lower, right)
        self.products()
        with self.f.when(finishing), self.outputs() as (lower, right):
            self.finish(lower, right)

    # ---- the seven products: the accumulators hold P1, C11; P1, U2, U3, C21; P5, C12, where U2 = P1 + P6

    def products(self) -> None:
        k = self.k
        u2, u3 = k.kept_at, k.kept_at + k.tile_elements
        self.clear()
        self.multiply(0)
        self.keep(u2)
        self.add_state(0)
        self.multiply(1)
        self.keep(self.state(LEAVES, 0))
        self.restore(u2)
        self.multiply(2)
        self.keep(u2)
        self.multiply(3)
        self.keep(u3)
        self.add_state(2)
        self.multiply(4)
        self.keep(self.state(LEAVES, 2))
        self.clear()
        self.multiply(5)
        self.leave_last(u3)
        self.add(u2)
        self.add_state(1)
        self.multiply(6)
        self.keep(self.state(LEAVES, 1))

    def first_factor(self, number: int) -> Index:
        """Where the tile's rows of a product's first factor lie in the workspace."""
        f, k = self.f, self.k
        factor = f.add(f.mul(self.at.number, PRODUCTS), number)
        return f.add(f.mul(factor, k.factor_elements), f.mul(self.start, k.sum_stride))

    def multiply(self, number: int) -> None:
        f, k, body = self.f, self.k, self.body
        base = f.address(self.at.b, number * k.panel, body.dtype)
        channels = PRODUCTS * k.part_depth
        panel = PackedStream(f, base, body.blocks, channels, body.dtype, k.lanes, lambda c: self.ahead(number, c))
        offsets = [t * k.sum_stride for t in range(self.count)]
        self.acc.multiply_add(
            f.address(body.work, self.first_factor(number), body.dtype), offsets, 1, k.part_depth, panel
        )

    def ahead(self, number: int, c: Index) -> None:
        """Asks for a line of the next product's rows, and of the panels of the next round: all tiles of rows together
        ask for all of these."""
        f, k, body = self.f, self.k, self.body
        share = -(-body.width // len(body.parts))
        step = f.add(f.mul(f.div(self.start, body.parts[0]), PRODUCTS * k.part_depth), number * k.part_depth, c)
        for n in range(0, share, LINE):
            at = f.add(PRODUCTS * k.panel + n, f.mul(step, share))
            f.prefetch(self.at.b, at, body.dtype, near=False)
        f.prefetch(body.work, f.add(self.first_factor(number + 1), f.mul(c, LINE)), body.dtype)

    # ---- the state

    def add_state(self, tile: int) -> None:
        self.add(self.state(ADDS, tile))

    def leave_last(self, u3: Index) -> None:
        """The fourth tile of what the round leaves; the accumulators stay as they are."""
        adds, leaves = self.state(ADDS, 3), self.state(LEAVES, 3)
        for j, t in self.each():
            value = self.f.b.fadd(self.load(u3, j, t), self.acc.value(j, t))
            self.store(self.f.b.fadd(self.load(adds, j, t), value), leaves, j, t)

    def state(self, which: Sequence[int], tile: Index) -> Index:
        """Where a tile of the state that a round reads or writes lies; of zeros there is one for all."""
        f, k = self.f, self.k
        starts = [k.zeros_at if s == ZERO else k.states_at + s * k.state_elements for s in which]
        at = self.body.pick(starts, self.at.number)
        if ZERO not in which:
            return f.add(at, f.mul(tile, self.tile), f.mul(self.start, 4 * self.body.width))
        moves = self.body.pick([int(s != ZERO) for s in which], self.at.number)
        inside = f.add(f.mul(tile, self.tile), f.mul(self.start, 4 * self.body.width))
        return f.add(at, f.mul(moves, inside))

    # ---- outputs

    @contextmanager
    def outputs(self) -> Iterator[tuple[Index, Index]]:
        """Which of the four tiles of a quarter: lower and right."""
        with self.f.loops([(0, 2), (0, 2)]) as (lower, right):
            yield lower, right

    def rows(self, lower: Index) -> Index:
        """Rows of the tile that are there, of the upper or lower part of this round's quarter."""
        f, k = self.f, self.k
        there = [part_rows(k.rows)[2 * half : 2 * half + 2] for half in (0, 1)]
        of_half = [self.body.pick([there[half][n] for half in LOWER], self.at.number) for n in (0, 1)]
        upper = f.b.icmp_signed("==", f.value(lower), I64(0))
        count = f.b.select(upper, f.value(of_half[0]), f.value(of_half[1]))
        return f.minimum(self.count, f.sub(count, self.start))

    def place(self, lower: Index, right: Index) -> tuple[Index, Index]:
        """Row and column of the output at which a tile begins."""
        f, k = self.f, self.k
        half = self.body.pick([n * -(-k.rows // 2) for n in LOWER], self.at.number)
        row = f.add(self.at.row, half, f.mul(lower, k.part_rows), self.start)
        tile = f.add(f.mul(self.at.group, 4), f.mul(self.body.pick(RIGHT, self.at.number), 2), right)
        return row, f.mul(tile, self.body.width)

    def request(self, lower: Index, right: Index) -> None:
        """Asks for the lines that the outputs go to."""
        row, column = self.place(lower, right)
        with self.f.loop(0, self.rows(lower)) as t:
            for j in range(self.body.blocks):
                at = [*self.at.batch, self.f.add(row, t), self.f.add(column, j * self.k.lanes)]
                self.body.epilogue.prefetch(self.body.out, at)

    def finish(self, lower: Index, right: Index) -> None:
        """Outputs of a tile: kept for the chunks to come, or stored."""
        f, k = self.f, self.k
        tile = f.add(f.mul(lower, 2), right)
        made, more = self.state(LEAVES, tile), self.state(WITH, tile)
        row, column = self.place(lower, right)
        masks = self.body.masks(column)
        partial = self.partial(lower, right)
        with f.loop(0, self.rows(lower)) as t:
            values = [f.b.fadd(self.load(made, j, t), self.load(more, j, t)) for j in range(self.body.blocks)]
            if k.chunks == 1:
                self.put(values, f.add(row, t), column, masks)
                return
            last = f.b.icmp_signed("==", f.value(self.at.chunk), I64(k.chunks - 1))
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
        f, k, body = self.f, self.k, self.body
        for j, value in enumerate(values):
            index, mask = [*self.at.batch, row, f.add(column, j * k.lanes)], masks[j] if masks else None
            if body.bias is not None:
                bias = f.load(body.bias, index[-1], body.dtype, k.lanes, None if k.packed[2] else mask)
                value = f.b.fadd(value, bias)
            value = body.epilogue.apply(value, index, mask)
            f.store(value, body.out, f.dot(index, k.out.strides), k.out.dtype, k.lanes, mask)

    def partial(self, lower: Index, right: Index) -> Index:
        """Where the sums of earlier chunks lie: group by group, quarter by quarter, then as states do."""
        f, k = self.f, self.k
        quarter = self.body.pick([2 * n + m for n, m in zip(LOWER, RIGHT, strict=True)], self.at.number)
        whole = f.add(f.mul(f.sub(self.at.group, self.at.first), 4), quarter)
        tile = f.add(f.mul(f.add(f.mul(lower, 2), right), self.tile), f.mul(self.start, 4 * self.body.width))
        return f.add(k.partial_at, f.mul(whole, k.state_elements), tile)
