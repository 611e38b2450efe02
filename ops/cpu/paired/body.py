"""The code of `PairedKernel`: per chunk of K scaled rows in scratch, then block by block of columns all tiles."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import I64, Index
from brickrt.ops.cpu.emit.sizes import Size, is_equal
from brickrt.ops.cpu.paired.pairing import PARTS, PERIOD, elements
from brickrt.ops.cpu.paired.row_scales import PairedFrame, RowScales, scaled_matrices
from brickrt.ops.cpu.paired.sums import plus

LINE = 64  # bytes of a cache line
ROWS_AT_A_TIME = 2  # of a tile
WIDENING = 2  # tiles of rows that widen the next block of columns


class PairedBody(PairedFrame):
    """Emits a product with paired elements of K."""

    def emit(self) -> None:
        """Matrices, chunks of K, blocks of columns, tiles of rows."""
        f, k = self.f, self.k
        low, high = f.box(self.axis)
        first, last = f.div(low, k.lanes), f.div(f.add(high, k.lanes - 1), k.lanes)
        with scaled_matrices(self) as corner, f.loop(0, k.chunks) as chunk:
            RowScales(self, corner, chunk).emit()
            panels = WidenedPanels(self, chunk, first, last) if k.widens else None
            with f.loop(first, last) as block, f.loop(0, k.tile_count) as tile:
                PairedTile(self, corner, chunk, first, block, tile, panels).emit()

    def block(self, chunk: Index, block: Index) -> ir.Value:
        """Address of a block of columns in a chunk of K."""
        f, k = self.f, self.k
        at = f.add(f.mul(chunk, k.padded_columns // k.lanes), block)
        return f.address(self.b, f.mul(at, k.chunk_depth * k.lanes), k.weight_type)

    def weight(self, row: Index, column: Index) -> ir.Value:
        """See `StrassenFrame`: the scaled element, taken back."""
        f, k = self.f, self.k
        at = f.mul(f.rem(row, k.chunk_depth), k.lanes)
        value = f.load(self.block(f.div(row, k.chunk_depth), f.div(column, k.lanes)), at, k.weight_type, k.lanes)
        return f.b.fmul(value, f.load(self.b, f.add(k.sizes_at, column), self.dtype, k.lanes))


class WidenedPanels:
    """Blocks of columns in a chunk of K as float32: one that all tiles of rows read, and the next one, of which the
    first tiles of rows widen some vectors in every step."""

    def __init__(self, body: PairedBody, chunk: Index, first: Index, last: Index) -> None:
        """With the first block, where there is one."""
        self.body, self.f, self.k, self.chunk, self.first = body, body.f, body.k, chunk, first
        self.final = body.f.sub(last, 1)
        some = self.f.b.icmp_signed("<", self.f.value(first), self.f.value(last))
        with self.f.when(some), self.f.loop(0, self.k.chunk_depth, PERIOD) as c:
            self.widen(first, first, c, PERIOD)

    def at(self, block: Index) -> ir.Value:
        """Address of a block: every second one lies in the same place."""
        f, k = self.f, self.k
        place = f.mul(f.rem(f.sub(block, self.first), 2), k.chunk_depth * k.lanes)
        return f.address(self.body.work, f.add(k.widened_at, place), self.body.dtype)

    def widen(self, block: Index, to: Index, c: Index, count: int) -> None:
        """Widens `count` elements of K of a block, from `c` on."""
        f, k = self.f, self.k
        source, target = self.body.block(self.chunk, block), self.at(to)
        for n in range(count):
            at = f.mul(f.add(c, n), k.lanes)
            value = f.load(source, at, k.weight_type, k.lanes)
            f.store(value, target, at, self.body.dtype, k.lanes)

    def widen_more(self, block: Index, tile: Index, c: Index) -> None:
        """What a step of a tile has to widen of the next block; behind the last one, that one again."""
        f, k = self.f, self.k
        with f.when(f.b.icmp_signed("<", f.value(tile), f.value(WIDENING))):
            count = PERIOD // WIDENING
            at = f.add(f.mul(tile, k.chunk_depth // WIDENING), f.div(c, WIDENING))
            self.widen(f.minimum(f.add(block, 1), self.final), f.add(block, 1), at, count)


class PairedTile:
    """A register tile: a block of columns, rows of all that are there from number `tile` times their height on."""

    def __init__(
        self,
        body: PairedBody,
        corner: Sequence[Index],
        chunk: Index,
        first: Index,
        block: Index,
        tile: Index,
        panels: WidenedPanels | None,
    ) -> None:
        self.body, self.f, self.k, self.corner, self.chunk = body, body.f, body.k, list(corner), chunk
        self.height, self.block, self.tile = body.k.tile_rows, block, tile
        self.row, self.column = self.f.mul(tile, self.height), self.f.mul(block, self.k.lanes)
        self.packed = body.block(chunk, block)
        self.panels = panels
        self.weights, self.read = (panels.at(block), body.dtype) if panels else (self.packed, body.k.weight_type)
        at = self.f.add(self.f.mul(self.f.sub(block, first), self.k.covered_rows), self.row)
        partial = self.f.add(self.k.partial_at, self.f.mul(at, self.k.lanes))
        self.partial = self.f.address(body.work, partial, body.dtype)

    def emit(self) -> None:
        """Sums, from what is to be taken off them to what is stored."""
        f, k = self.f, self.k
        for t in range(self.height):
            self.body.epilogue.prefetch(self.body.out, self.index(t))
        self.sums = [f.variable(value) for value in self.initial()]
        rows = f.address(self.body.work, f.mul(self.row, k.sum_stride), self.body.dtype)
        with f.loop(0, k.chunk_depth, PERIOD) as c:
            self.prefetch(c)
            if self.panels:
                self.panels.widen_more(self.block, self.tile, c)
            self.step(f.address(rows, c, self.body.dtype), f.mul(c, k.lanes))
        self.leave()

    def initial(self) -> list[ir.Value]:
        """Less the products of the rows' pairs in this chunk, and in the first one less those of the columns'."""
        f, k, dtype = self.f, self.k, self.body.dtype
        start = f.variable(f.b.fneg(f.load(self.body.b, f.add(k.pairs_at, self.column), dtype, k.lanes)))
        own = [f.load(self.body.work, f.add(k.products_at, self.row, t), dtype) for t in range(self.height)]
        if k.chunks == 1:
            return [f.b.fsub(f.read(start), f.splat(value, k.lanes)) for value in own]
        first = f.b.icmp_signed("==", f.value(self.chunk), I64(0))
        before = [f.load(self.partial, t * k.lanes, dtype, k.lanes) for t in range(self.height)]
        so_far = [f.b.select(first, f.read(start), value) for value in before]
        return [f.b.fsub(value, f.splat(each, k.lanes)) for value, each in zip(so_far, own, strict=True)]

    def step(self, rows: ir.Value, at: Index) -> None:
        """The elements of a period."""
        f, k = self.f, self.k
        for part in PARTS:
            weights = {n: f.load(self.weights, f.add(at, n * k.lanes), self.read, k.lanes) for n in elements(part)}
            for start in range(0, self.height, ROWS_AT_A_TIME):
                for n in part:
                    for t, total in [*enumerate(self.sums)][start : start + ROWS_AT_A_TIME]:
                        element = partial(self.element, rows, t)
                        f.change(total, plus(f, f.read(total), n, element, weights))

    def element(self, rows: ir.Value, t: int, n: int) -> ir.Value:
        """An element of a row of the tile in all lanes."""
        return self.f.splat(self.f.load(rows, t * self.k.sum_stride + n, self.body.dtype), self.k.lanes)

    def prefetch(self, c: Index) -> None:
        """Lines of the next block of columns: half of those of a period, so that two tiles of rows prefetch all. Where
        there is but one, it prefetches every second line, of which processors fetch the neighbours too."""
        f, k = self.f, self.k
        line = LINE // k.weight_type.itemsize
        lines = max(1, PERIOD * k.lanes // line // 2)
        apart: int | Size = line * (1 + is_equal(k.tile_count, 1))
        number = f.add(f.mul(self.tile, k.chunk_depth // PERIOD), f.div(c, PERIOD))
        panel = k.chunk_depth * k.lanes
        ahead = f.add(f.minimum(f.mul(number, lines * apart), panel - lines * 2 * line), panel)
        for n in range(lines):
            f.prefetch(self.packed, f.add(ahead, f.mul(n, apart)), k.weight_type, near=False)

    # ---- outputs

    def leave(self) -> None:
        """Outputs, or the sums so far for the chunks to come."""
        f, k = self.f, self.k
        if k.chunks == 1:
            self.finish()
            return
        with f.b.if_else(f.b.icmp_signed("==", f.value(self.chunk), I64(k.chunks - 1))) as (ends, goes_on):
            with ends:
                self.finish()
            with goes_on:
                self.spill(self.partial)

    def spill(self, to: ir.Value) -> None:
        """Stores the sums row by row."""
        for t, total in enumerate(self.sums):
            self.f.store(self.f.read(total), to, t * self.k.lanes, self.body.dtype, self.k.lanes)

    def finish(self) -> None:
        """Outputs of the rows that are there: all of them straight from registers, or what the last tile has."""
        f, k, dtype = self.f, self.k, self.body.dtype
        whole = not k.ragged and k.columns % self.body.group == 0
        mask = None if whole else self.body.inside(self.column)
        count = f.sub(k.rows, self.row)
        with f.b.if_else(f.b.icmp_signed(">=", f.value(count), I64(self.height))) as (all_rows, some):
            with all_rows:
                for t, total in enumerate(self.sums):
                    self.put(f.read(total), t, mask)
            with some:
                tile = f.address(self.body.work, k.tile_at, dtype)
                self.spill(tile)
                with f.loop(0, count) as row:
                    self.put(f.load(tile, f.mul(row, k.lanes), dtype, k.lanes), row, mask)

    def put(self, value: ir.Value, t: Index, mask: ir.Value | None) -> None:
        """Sums of a row, taken back, finished and stored."""
        f, k = self.f, self.k
        back = f.load(self.body.work, f.add(k.returns_at, self.row, t), self.body.dtype)
        self.body.put(f.b.fmul(value, f.splat(back, k.lanes)), self.index(t), mask)

    def index(self, t: Index) -> list[Index]:
        """Where a row's outputs lie."""
        return self.k.view.index(self.f, self.corner, self.f.add(self.row, t), self.column)
