"""The code of `StrassenKernel`: per chunk of K the first factors, then for every pair of tiles the seven products."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.strassen.frame import Masks, SevenProducts, StrassenFrame
from brickrt.ops.cpu.strassen.row_ranges import mixed_matrices
from brickrt.ops.cpu.strassen.scheme import StrassenScheme
from brickrt.ops.cpu.strassen.sizes import PANELS_AHEAD, PRODUCTS

KEPT_BEFORE = None, 0, 0, 0, 1, None, 0
"""The kept tile that a product is added to, None for none: U2 is 0 and U3 is 1."""


class StrassenBody(StrassenFrame):
    """Emits one level of Strassen's scheme."""

    def __init__(self, kernel: StrassenScheme, f: FunctionEmitter) -> None:
        super().__init__(kernel, f)
        self.long = kernel.out.block > 1 or kernel.epilogue.long

    # ---- loops

    def emit(self) -> None:
        """Matrices, then chunks of K, then pairs of tiles of columns, then tiles of rows."""
        f, k = self.f, self.k
        pairs = self.groups()
        with mixed_matrices(self) as corner:
            if k.chunks > 1:
                self.clear(k.partial_at, f.mul(f.sub(pairs[1], pairs[0]), k.partial_elements))
            with f.loop(0, k.chunks) as chunk:
                last = f.b.icmp_signed("==", f.value(chunk), f.value(k.chunks - 1)) if k.chunks > 1 else None
                self.chunk(ChunkPosition(corner, chunk, pairs, last))

    def chunk(self, at: ChunkPosition) -> None:
        """First factors of a chunk, then all its pairs of tiles."""
        f, k = self.f, self.k
        self.first_factors(at.corner, at.number, self.factors(at.pairs[0], at.number))
        whole = k.columns // self.group
        cut = not k.ragged and k.columns % self.group
        with f.loop(at.pairs[0], f.minimum(at.pairs[1], whole) if cut else at.pairs[1]) as pair:
            self.pair(at, pair, masked=k.ragged)
        if cut:
            with f.when(f.b.icmp_signed(">", at.pairs[1], f.value(whole))):
                self.pair(at, whole, masked=True)

    def pair(self, at: ChunkPosition, pair: Index, masked: bool) -> None:
        """All tiles of rows by one pair of tiles of columns."""
        f, k = self.f, self.k
        starts = [f.add(f.mul(pair, self.group), j * k.lanes) for j in range(2 * self.blocks)]
        masks = [self.inside(start) if masked else None for start in starts]
        b, following = self.factors(pair, at.number), self.following(at, pair)

        for product in range(PRODUCTS if k.shares_panels else 1):
            for first, repeat, count in k.tiles.runs:
                with f.loop(0, repeat) as r:
                    start = f.add(first, f.mul(r, count))
                    if k.shares_panels:
                        SharedPanel(self, at, pair, start, count, masks, b, following).product(product)
                    else:
                        PairOfTiles(self, at, pair, start, count, masks, b, following).products()

    def factors(self, pair: Index, chunk: Index) -> ir.Value:
        """Address of what a pair of tiles is multiplied by in a chunk."""
        f, k = self.f, self.k
        return f.address(self.b, f.mul(f.add(f.mul(pair, k.chunks), chunk), PRODUCTS * k.panel), self.dtype)

    def following(self, at: ChunkPosition, pair: Index) -> ir.Value:
        """Address of the factors that are wanted next; after the box's last ones, of those of the box beside it."""
        f = self.f
        after = self.factors(at.pairs[1], 0)
        if at.last is not None:
            after = f.b.select(at.last, after, self.factors(at.pairs[0], f.add(at.number, 1)))
        is_last = f.b.icmp_signed("==", f.value(f.add(pair, 1)), f.value(at.pairs[1]))
        return f.b.select(is_last, after, self.factors(f.add(pair, 1), at.number))


@dataclass(frozen=True)
class ChunkPosition:
    """A chunk of K of the matrix at `corner`, for all `pairs` of tiles of columns. `last` tells whether it is the last
    one, None where there is one alone."""

    corner: list[Index]
    number: Index
    pairs: tuple[Index, Index]
    last: ir.Value | None


class PairOfTiles(SevenProducts):
    """Register tiles of the upper and the lower half of the rows, times two tiles of columns."""

    looped = False  # outputs are finished in between, and in a loop the sums would be on the stack meanwhile

    def __init__(
        self,
        body: StrassenBody,
        at: ChunkPosition,
        pair: Index,
        start: Index,
        count: int,
        masks: Masks,
        b: ir.Value,
        following: ir.Value,
    ) -> None:
        super().__init__(body, start, count, b, 0)
        self.body, self.at, self.pair = body, at, pair
        self.masks, self.following = masks, following

    def later(self) -> ir.Value:
        """The panels of the following pair or chunk."""
        return self.following

    def begin(self, tile: int) -> None:
        """Prefetches the lines that an output goes to."""
        with self.ending(), self.f.loop(0, self.count) as t:
            for j in range(self.body.blocks):
                self.body.epilogue.prefetch(self.body.out, self.index(tile, j, t))

    def ending(self) -> AbstractContextManager[None]:
        """A condition around what only the last chunk does."""
        return nullcontext() if self.at.last is None else self.f.when(self.at.last)

    def leave(self, tile: int, plus: Index | None = None) -> None:
        """Adds the tile to the sum of earlier chunks; after the last chunk, finishes and stores it."""
        values = [self.acc.value(j, t) for j, t in self.each()]
        if plus is not None:
            more = self.tile(plus)
            values = [self.f.b.fadd(self.load(more, *at), value) for at, value in zip(self.each(), values, strict=True)]
        made = dict(zip(self.each(), values, strict=True))
        if self.at.last is None:
            self.finish(made, tile)
            return
        partial = self.tile(self.partial(tile))
        with self.f.b.if_else(self.at.last) as (ends, goes_on):
            with ends:
                self.finish(made, tile, partial)
            with goes_on:
                for at, value in made.items():
                    self.store(self.f.b.fadd(self.load(partial, *at), value), partial, *at)

    def finish(self, made: dict[tuple[int, int], ir.Value], tile: int, partial: ir.Value | None = None) -> None:
        """Outputs of a tile: sums of the last chunk, with those of the chunks before it where there are any. The lower
        half may lack its last row."""
        f, k = self.f, self.k
        there = f.sub(k.rows - k.part_rows, self.start) if tile > 1 else self.count
        if not self.body.long:
            last = f.b.icmp_signed(">=", f.value(there), f.value(self.count))
            for (j, t), value in made.items():
                with nullcontext() if tile < 2 or t < self.count - 1 else f.when(last):
                    self.output(value, tile, partial, j, t)
            return
        raw = self.tile(k.raw_at)
        for at, value in made.items():
            self.store(value, raw, *at)
        with f.loop(0, f.minimum(there, self.count)) as row:
            for j in range(self.body.blocks):
                self.output(self.load(raw, j, row), tile, partial, j, row)

    def index(self, tile: int, j: int, t: Index) -> list[Index]:
        """Index in the output of vector (j, t) of one of the tiles C11, C12, C21, C22."""
        f, k = self.f, self.k
        lower, right = divmod(tile, 2)
        row = f.add(self.start, lower * k.part_rows, t)
        column = f.add(f.mul(self.pair, self.body.group), right * self.body.width + j * k.lanes)
        return self.body.view.index(f, self.at.corner, row, column)

    def output(self, value: ir.Value, tile: int, partial: ir.Value | None, j: int, t: Index) -> None:
        """Stores one vector, with the sum of earlier chunks where there is one."""
        if partial is not None:
            value = self.f.b.fadd(self.load(partial, j, t), value)
        self.body.put(value, self.index(tile, j, t), self.masks[tile % 2 * self.body.blocks + j])

    def partial(self, tile: int) -> Index:
        """Where the sums of earlier chunks lie: tile by tile, the four outputs of each together."""
        f, k, width = self.f, self.k, self.body.width
        row = f.add(f.mul(f.sub(self.pair, self.at.pairs[0]), k.part_rows), self.start)
        return f.add(k.partial_at + tile * self.count * width, f.mul(row, 4 * width))


class SharedPanel(PairOfTiles):
    """The same, product by product: all tiles of rows share its panel before the next, and ask for a later one at an
    even pace (`products/rows/pace.py`). What a product leaves for later ones waits in the workspace, U2 in the first
    kept tile of these rows and U3 in the second. Lines of outputs are not asked for: a burst of them keeps weights
    waiting."""

    def product(self, number: int) -> None:
        """One of the seven products, and what comes behind it."""
        before = KEPT_BEFORE[number]
        if before is None:
            self.clear()
        else:
            self.restore(self.kept(before))
        self.multiply(number)
        self.then(number)

    def then(self, number: int) -> None:
        """Keeps the sums of a product, or leaves a tile of the output."""
        match number:
            case 0 | 2:
                self.spill(self.kept(0))
            case 1:
                self.leave(0)
            case 3:
                self.spill(self.kept(1))
            case 4:
                self.leave(2)
            case 5:
                self.leave(3, self.kept(1))
                self.add(self.kept(0))
                self.spill(self.kept(0))
            case 6:
                self.leave(1)

    def kept(self, which: int) -> Index:
        """Where U2 and U3 of these rows wait."""
        f, k, width = self.f, self.k, self.body.width
        return f.add(k.spills_at + which * k.part_rows * width, f.mul(self.start, width))

    def share_of(self, number: Index, share: Index) -> ir.Value:
        """The tile's part of a panel that comes PANELS_AHEAD later."""
        f, k = self.f, self.k
        panel = int(number) + PANELS_AHEAD
        base = self.b if panel < PRODUCTS else self.later()
        place = f.div(self.start, self.count)
        first = f.add(f.mul(f.mul(place, k.part_depth), share), panel % PRODUCTS * k.panel)
        return f.address(base, first, self.frame.dtype)

    def next_rows(self, number: Index) -> ir.Value:
        """Those of the next tile."""
        f, k = self.f, self.k
        return f.address(self.rows_of(number), self.count * k.sum_stride, self.frame.dtype)
