"""The code of `StrassenKernel`: per chunk of K the sums S, then for every pair of register tiles the seven products."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from llvmlite import ir

from brickrt.ops.cpu.emit import FLOAT, Fn, Index, vector
from brickrt.ops.cpu.expr_ir import effort
from brickrt.ops.cpu.kept_tile import KeptTile
from brickrt.ops.cpu.products import Accumulators, PackedStream
from brickrt.ops.cpu.tiles import sizes

if TYPE_CHECKING:
    from brickrt.ops.cpu.strassen import StrassenKernel

SHORT = 8  # operations of an epilogue that is written out for every vector; a loop applies longer ones
LINE = 16  # elements of a cache line
ROWS_AHEAD = 2  # between the rows that are added and those asked for
MOST_ASKED = 4  # lines asked for while one vector of each sum is computed
Masks = list[list[ir.Value | None]]  # of the left and the right tile of columns


@dataclass(frozen=True)
class RowTiles:
    """`repeat` register tiles of `count` rows from `start` of the upper half on; `missing`: the last row of the lower
    half does not exist."""

    start: int
    repeat: int
    count: int
    missing: bool


def row_tiles(rows: int, most: int) -> list[RowTiles]:
    """The tiles of the upper half of so many rows, equal ones gathered."""
    half = -(-rows // 2)
    parts, odd = sizes(half, most) if rows else [], rows % 2
    whole = len(parts) - odd
    runs: list[RowTiles] = []
    for count in dict.fromkeys(parts[:whole]):
        at = parts.index(count)
        runs.append(RowTiles(sum(parts[:at]), parts[:whole].count(count), count, False))
    return runs + ([RowTiles(half - parts[-1], 1, parts[-1], True)] if odd else [])


class StrassenBody:
    def __init__(self, kernel: StrassenKernel, f: Fn) -> None:
        self.k, self.f = kernel, f
        self.dtype = kernel.out.dtype
        self.out, self.a, self.b = (f.pointer(i) for i in range(3))
        self.bias = f.pointer(3) if kernel.op.bias else None
        self.epilogue = kernel.epilogue.bind(f)
        self.long = kernel.op.epilogue is not None and effort(kernel.op.epilogue) > SHORT
        self.work = f.pointer(1 + len(kernel.ins))
        self.width = kernel.panel // kernel.part_depth
        self.blocks = self.width // kernel.lanes

    # ---- loops

    def emit(self) -> None:
        """Batches, then chunks of K, then pairs of tiles of columns, then tiles of rows."""
        f, k = self.f, self.k
        rank = k.out.type.rank
        first, last = f.box(rank - 1)
        pairs = f.div(first, 2 * self.width), f.div(f.add(last, 2 * self.width - 1), 2 * self.width)
        row = f.box(rank - 2)[0]
        with f.loops([f.box(d) for d in range(rank - 2)]) as batch:
            if k.chunks > 1:
                self.clear(f.sub(pairs[1], pairs[0]))
                with f.loop(0, k.chunks - 1) as chunk:
                    self.chunk(batch, row, chunk, pairs, last=False)
            self.chunk(batch, row, k.chunks - 1, pairs, last=True)

    def clear(self, pairs: Index) -> None:
        f, k = self.f, self.k
        zero = ir.Constant(vector(FLOAT, k.lanes), None)
        with f.loop(0, f.mul(pairs, k.partial_elements), k.lanes) as i:
            f.store(zero, self.work, f.add(i, k.partial_at), self.dtype, k.lanes)

    def chunk(self, batch: list[Index], row: Index, chunk: Index, pairs: tuple[Index, Index], last: bool) -> None:
        f, k = self.f, self.k
        operand = k.ins[0]
        strides = [0 if e == 1 else s for e, s in zip(operand.shape[:-2], operand.strides, strict=False)]
        strides = [0] * (len(batch) - len(strides)) + strides
        start = f.add(f.dot(batch, strides), f.mul(row, operand.strides[-2]), f.mul(chunk, 2 * k.part_depth))
        a = f.address(self.a, start, self.dtype)
        place = _Chunk(batch, row, chunk, a, pairs, last)
        self.sums(a, self.factors(pairs[0], chunk))
        whole = k.columns // (2 * self.width)
        end = pairs[1] if k.ragged or not last else f.minimum(pairs[1], whole)
        with f.loop(pairs[0], end) as pair:
            self.pair(place, pair, masked=last and k.ragged)
        if last and not k.ragged and k.columns % (2 * self.width):
            with f.when(f.b.icmp_signed(">", pairs[1], f.value(whole))):
                self.pair(place, whole, masked=True)

    def pair(self, at: _Chunk, pair: Index, masked: bool) -> None:
        f, k = self.f, self.k
        masks = self.masks(f.mul(pair, 2 * self.width), masked)
        b, following = self.factors(pair, at.number), self.following(at, pair)
        for run in row_tiles(k.rows, k.most):
            with f.loop(0, run.repeat) as r:
                start = f.add(run.start, f.mul(r, run.count))
                PairOfTiles(self, at, pair, start, run, masks, b, following).emit()

    def factors(self, pair: Index, chunk: Index) -> ir.Value:
        """Address of what a pair of tiles is multiplied by in a chunk."""
        f, k = self.f, self.k
        return f.address(self.b, f.mul(f.add(f.mul(pair, k.chunks), chunk), 7 * k.panel), self.dtype)

    def following(self, at: _Chunk, pair: Index) -> ir.Value:
        """Address of the factors that are wanted next; after the box's last ones, of those of the box beside it."""
        f = self.f
        chunk = 0 if at.last else f.add(at.number, 1)
        after = self.factors(at.pairs[1] if at.last else at.pairs[0], chunk)
        is_last = f.b.icmp_signed("==", f.value(f.add(pair, 1)), f.value(at.pairs[1]))
        return f.b.select(is_last, after, self.factors(f.add(pair, 1), at.number))

    def masks(self, column: Index, masked: bool) -> Masks:
        """Per block of a pair of tiles, the lanes that belong to the box; None for all."""
        if not masked:
            return [[None] * self.blocks] * 2
        starts = [self.f.add(column, j * self.k.lanes) for j in range(2 * self.blocks)]
        inside = [self.inside(start) for start in starts]
        return [inside[: self.blocks], inside[self.blocks :]]

    def inside(self, column: Index) -> ir.Value:
        f, k = self.f, self.k
        lo, hi = f.box(k.out.type.rank - 1)
        before = f.tail_mask(f.sub(lo, column), k.lanes)
        return f.b.and_(f.tail_mask(f.sub(hi, column), k.lanes), f.b.not_(before))

    # ---- S

    def sums(self, a: ir.Value, b: ir.Value) -> None:
        """S1…S4 of the rows from `a` on, where a missing lower row counts as zero; and asks for the factors at `b`."""
        f, k = self.f, self.k
        steps = max(1, k.rows // 2 * k.part_depth // k.lanes)
        lines = min(MOST_ASKED, -(-7 * k.panel // (steps * LINE)))
        with f.loop(0, k.rows // 2) as row, f.loop(0, k.part_depth, k.lanes) as c:
            step = f.mul(f.add(f.mul(row, k.part_depth // k.lanes), f.div(c, k.lanes)), lines * LINE)
            for n in range(lines):
                f.prefetch(b, f.add(step, n * LINE), self.dtype, near=False)
            self.sum(a, row, c, lower=True)
        if k.rows % 2:
            with f.loop(0, k.part_depth, k.lanes) as c:
                self.sum(a, k.part_rows - 1, c, lower=False)

    def sum(self, a: ir.Value, row: Index, c: Index, lower: bool) -> None:
        f, k = self.f, self.k
        stride, zero = k.ins[0].strides[-2], ir.Constant(vector(FLOAT, k.lanes), None)
        upper = f.add(f.mul(row, stride), c)
        below = f.add(upper, k.part_rows * stride)
        for at, n in product((upper, below), (0, k.part_depth)):
            f.prefetch(a, f.add(at, ROWS_AHEAD * stride + n), self.dtype)
        a11, a12 = (f.load(a, f.add(upper, n), self.dtype, k.lanes) for n in (0, k.part_depth))
        a21, a22 = (f.load(a, f.add(below, n), self.dtype, k.lanes) if lower else zero for n in (0, k.part_depth))
        s1 = f.b.fadd(a21, a22)
        s2 = f.b.fsub(s1, a11)
        at = f.add(f.mul(row, k.sum_stride), c)
        for i, value in enumerate((s1, s2, f.b.fsub(a11, a21), f.b.fsub(a12, s2))):
            f.store(value, self.work, f.add(at, i * k.part_rows * k.sum_stride), self.dtype, k.lanes)


@dataclass(frozen=True)
class _Chunk:
    """A chunk of K: `a` is the address of its first element in the first row of a box, `pairs` those of its tiles."""

    batch: list[Index]
    row: Index
    number: Index
    a: ir.Value
    pairs: tuple[Index, Index]
    last: bool


class PairOfTiles(KeptTile):
    """Register tiles of the upper and the lower half of the rows, times two tiles of columns."""

    def __init__(
        self,
        body: StrassenBody,
        at: _Chunk,
        pair: Index,
        start: Index,
        run: RowTiles,
        masks: Masks,
        b: ir.Value,
        following: ir.Value,
    ) -> None:
        zero = ir.Constant(vector(FLOAT, body.k.lanes), None)
        super().__init__(
            Accumulators.create(body.f, [zero] * body.blocks, run.count, body.dtype, body.k.lanes), body.work
        )
        self.body, self.k, self.at = body, body.k, at
        self.pair, self.start, self.run, self.masks = pair, start, run, masks
        self.b, self.following = b, following

    def emit(self) -> None:
        """The accumulators hold P1, C11; P1, U2, U3, C21; P5, C12, where U2 = P1 + P6."""
        k = self.k
        u2, u3 = k.kept_at, k.kept_at + k.tile_elements
        self.multiply(0, *self.quarter(0, 0))
        self.keep(u2)
        self.request(0, 0)
        self.multiply(1, *self.quarter(0, 1))
        self.output(0, 0)
        self.restore(u2)
        self.multiply(2, *self.summed(2))
        self.keep(u2)
        self.multiply(3, *self.summed(3))
        self.keep(u3)
        self.request(1, 0)
        self.multiply(4, *self.quarter(1, 1))
        self.output(1, 0)
        self.clear()
        self.request(1, 1)
        self.multiply(5, *self.summed(1))
        self.output(1, 1, u3)
        self.add(u2)
        self.request(0, 1)
        self.multiply(6, *self.summed(4))
        self.output(0, 1)

    # ---- first factors: address of the tile's first row, elements from row to row

    def quarter(self, lower: int, right: int) -> tuple[ir.Value, int]:
        k, f = self.k, self.f
        stride = k.ins[0].strides[-2]
        offset = f.add(f.mul(self.start, stride), lower * k.part_rows * stride + right * k.part_depth)
        return f.address(self.at.a, offset, self.body.dtype), stride

    def summed(self, number: int) -> tuple[ir.Value, int]:
        """S of this number."""
        k, f = self.k, self.f
        offset = f.add(f.mul(self.start, k.sum_stride), (number - 1) * k.part_rows * k.sum_stride)
        return f.address(self.body.work, offset, self.body.dtype), k.sum_stride

    def multiply(self, number: int, rows: ir.Value, stride: int) -> None:
        """Adds a product to the accumulators. A row that is missing is not read: what it would give is not stored."""
        k, f, body = self.k, self.f, self.body
        base = f.address(self.b, number * k.panel, body.dtype)
        channels = 7 * k.part_depth
        panel = PackedStream(f, base, body.blocks, channels, body.dtype, k.lanes, lambda c: self.ahead(number, c))
        absent = self.run.missing and number == 4
        offsets = [t * stride for t in range(self.run.count - absent)]
        self.acc.multiply_add(rows, offsets, 1, k.part_depth, panel)

    def ahead(self, number: int, c: Index) -> None:
        """Asks for a line of the factors that follow: all tiles of rows together ask for all of them."""
        k, f, body = self.k, self.f, self.body
        parts = sizes(k.part_rows, k.most)
        share = -(-body.width // len(parts))
        step = f.add(f.mul(f.div(self.start, parts[0]), 7 * k.part_depth), number * k.part_depth, c)
        for n in range(0, share, LINE):
            f.prefetch(self.following, f.add(f.mul(step, share), n), body.dtype, near=False)

    # ---- outputs

    def output(self, lower: int, right: int, plus: int | None = None) -> None:
        """Adds a quarter's tile to what earlier chunks gave: the sum is kept, or after the last chunk finished."""
        rows = self.run.count - (lower and self.run.missing)
        values = {}
        for j, t in self.each()[: rows * self.body.blocks]:
            values[j, t] = value = self.acc.value(j, t)
            if plus is not None:
                values[j, t] = self.f.b.fadd(self.load(plus, j, t), value)
        if not (self.at.last and self.body.long):
            for (j, t), value in values.items():
                self.finish(value, lower, right, j, t)
            return
        for (j, t), value in values.items():
            self.store(value, self.k.raw_at, j, t)
        with self.f.loop(0, rows) as row:
            for j in range(self.body.blocks):
                self.finish(self.load(self.k.raw_at, j, row), lower, right, j, row)

    def request(self, lower: int, right: int) -> None:
        """Asks for the lines that the next output goes to."""
        for j, t in self.each() if self.at.last else []:
            self.body.epilogue.prefetch(self.body.out, self.index(lower, right, j, t))

    def index(self, lower: int, right: int, j: int, t: Index) -> list[Index]:
        f, k, at, width = self.f, self.k, self.at, self.body.width
        row = f.add(at.row, self.start, lower * k.part_rows, t)
        return [*at.batch, row, f.add(f.mul(self.pair, 2 * width), right * width + j * k.lanes)]

    def finish(self, value: ir.Value, lower: int, right: int, j: int, t: Index) -> None:
        f, k, body = self.f, self.k, self.body
        if k.chunks > 1:
            partial = self.partial(lower, right)
            value = f.b.fadd(self.load(partial, j, t), value)
            if not self.at.last:
                self.store(value, partial, j, t)
                return
        index = self.index(lower, right, j, t)
        mask = self.masks[right][j]
        if body.bias is not None:
            bias = f.load(body.bias, index[-1], body.dtype, k.lanes, None if k.packed[2] else mask)
            value = f.b.fadd(value, bias)
        value = body.epilogue.apply(value, index, mask)
        f.store(value, body.out, f.dot(index, k.out.strides), k.out.dtype, k.lanes, mask)

    def partial(self, lower: int, right: int) -> Index:
        """Where the sums of earlier chunks lie: tile by tile, the four outputs of each together."""
        f, k, width = self.f, self.k, self.body.width
        tile = f.add(f.mul(f.sub(self.pair, self.at.pairs[0]), k.part_rows), self.start)
        return f.add(k.partial_at + (2 * lower + right) * self.run.count * width, f.mul(tile, 4 * width))
