"""The code of a matrix product: loops over batches, tiles of columns, and tiles of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I64, Index, register_type, vector, zeros
from brickrt.ops.cpu.emit.sizes import Size
from brickrt.ops.cpu.products.live_taps import tile_place
from brickrt.ops.cpu.products.matrices.scheme import MatMulScheme
from brickrt.ops.cpu.products.register_tile import Accumulators, LoadWeight, PackedStream
from brickrt.ops.cpu.products.row_tiles import RepeatedTiles, RowWindow
from brickrt.ops.cpu.products.rows.pace import Pace
from brickrt.ops.cpu.products.rows.short_rows import RowTiles
from brickrt.ops.cpu.products.words.bfloat_dot import HALF_WORD, joined_words
from brickrt.ops.cpu.products.words.choose_dot import word_dot
from brickrt.ops.cpu.products.words.paired_bytes import PairedByteDot, PixelPairs
from brickrt.ops.cpu.products.words.row_pairs import sum_row_pairs

ROWS = RowWindow(1, 1, 1, 1, 0)
Masks = list[ir.Value | None]
"""One per block of columns."""
Places = list[tuple[int, int, list[Index]]]
"""Block, row and index of each vector of a tile."""


class MatMulBody:
    """Emits a matrix product."""

    def __init__(self, kernel: MatMulScheme, f: FunctionEmitter) -> None:
        self.k, self.f = kernel, f
        self.out, self.a, self.b = (f.pointer(i) for i in range(3))
        self.bias = f.pointer(1 + kernel.op.factors) if kernel.op.bias else None
        self.dot = word_dot(f, kernel.isa, kernel.integer, kernel.pairs_bytes) if kernel.in_words else None
        work = f.pointer(1 + len(kernel.ins) + kernel.extra_pointers) if kernel.workspace else None
        self.copied = work if kernel.copies_weights else None
        self.pairs = PixelPairs(f, self.dot, work) if isinstance(self.dot, PairedByteDot) else None
        self.epilogue = kernel.epilogue.bind(f)
        self.chunk: Index = 0
        self.number: Index = 0
        self.pace: Pace | None = None

    def emit(self) -> None:
        """Batches, then parts of K, tiles of columns, and runs of tiles of rows."""
        f, k = self.f, self.k
        rank, (ob, _) = k.out.type.rank, k.tile
        (first, last), row = f.box(rank - 1), f.box(rank - 2)[0]
        whole = (k.blocks - 1 if k.any_columns else k.columns // k.lanes) // ob
        rest, masked = int(k.blocks - whole * ob), bool(k.any_columns or k.columns % k.lanes)
        runs = self.runs(k.shape_class[1])
        self.pace = Pace(f, ob * k.lanes, runs) if k.shares_chunks else None
        outer = 1 if k.shares_chunks else k.chunks
        with f.loops([f.box(d) for d in range(rank - 2)]) as batch, f.loop(0, outer) as self.chunk:
            width = ob * k.lanes
            self.sum_pairs(batch)
            with f.loop(f.div(first, width), f.minimum(whole, f.div(f.add(last, width - 1), width))) as t:
                self.rows(batch, row, runs, t, ob, masked=False)
            if rest:
                with f.when(f.b.icmp_signed(">", last, f.value(whole * width))):
                    self.rows(batch, row, runs, whole, rest, masked)

    def sum_pairs(self, batch: list[Index]) -> None:
        """What the pairs of all rows sum to, where their products are among the sums."""
        if self.pairs is None:
            return
        f, k = self.f, self.k
        lo, hi = f.box(k.out.type.rank - 2)
        start = f.add(f.dot(batch, k.batch_strides(0)), f.mul(lo, k.a.strides[-2]))
        sum_row_pairs(f, k.a, f.address(self.a, start, k.a.dtype), f.sub(hi, lo), self.pairs)

    def runs(self, rows: int | Size) -> list[RepeatedTiles]:
        """The tiles of all rows of the box."""
        ob, most = self.k.tile
        return RowTiles(most, ob, self.k.isa, not self.k.shares_chunks).runs(ROWS, (rows, 0, 0, 0))

    def rows(self, batch: list[Index], row: Index, runs: list, tile: Index, blocks: int, masked: bool) -> None:
        """All rows of the box by one tile of `blocks` blocks of columns."""
        f, shared = self.f, self.k.shares_chunks
        with f.loop(0, self.k.chunks if shared else 1) as chunk:
            self.chunk = chunk if shared else self.chunk
            if self.copied is not None:
                self.copy_weights(batch, tile, blocks)
            for i, run in enumerate(runs):
                with f.loop(0, run.repeat) as r:
                    start, _ = tile_place(f, run, row, 0, r)
                    self.number = self.pace.number(i, r) if self.pace else 0
                    self.tile(batch, start, run.tile.count, tile, blocks, masked)

    def copy_weights(self, batch: list[Index], tile: Index, blocks: int) -> None:
        """Writes the weights of a tile and a chunk to the workspace, in float32."""
        f, k = self.f, self.k
        assert self.copied is not None
        width, start = k.tile[0] * k.lanes, f.mul(self.chunk, k.chunk_depth)
        stream = f.address(self.stream(batch, tile), f.mul(start, width), k.weight_type)
        steps = f.minimum(k.chunk_depth, f.sub(k.depth, start)) if k.chunks > 1 else k.depth
        with f.loop(0, steps) as c:
            for j in range(blocks):
                at = f.add(f.mul(c, width), j * k.lanes)
                f.store(f.load(stream, at, k.weight_type, k.lanes), self.copied, at, k.sums, k.lanes)

    def masks(self, column: Index, blocks: int, masked: bool) -> list[ir.Value | None]:
        """One mask per block of columns: unless boxes are ragged, only the matrix's last one may be partial."""
        f, k = self.f, self.k
        if k.ragged:
            return [self.inside(f.add(column, j * k.lanes)) for j in range(blocks)]
        tail = f.tail_mask((k.columns - 1) % k.lanes + 1, k.lanes) if masked else None
        return [None] * (blocks - 1) + [tail]

    def inside(self, column: Index) -> ir.Value:
        """The lanes of a block from `column` on that belong to the box."""
        f, k = self.f, self.k
        lo, hi = f.box(k.out.type.rank - 1)
        before = f.tail_mask(f.sub(lo, column), k.lanes)
        return f.b.and_(f.tail_mask(f.sub(hi, column), k.lanes), f.b.not_(before))

    def tile(self, batch: list[Index], row: Index, count: int, tile: Index, blocks: int, masked: bool) -> None:
        """One register tile, from bias to store."""
        f, k = self.f, self.k
        column = f.mul(tile, k.tile[0] * k.lanes)
        masks = self.masks(column, blocks, masked)
        acc = Accumulators.create(f, self.initial(column, masks), count, k.a.dtype, k.lanes, self.dot)
        if self.pairs is not None:
            pairs, first = self.pairs, f.sub(row, f.box(k.out.type.rank - 2)[0])
            acc.change(lambda value, t: pairs.less(value, f.add(first, t)))
        a = k.a
        start = f.add(f.dot(batch, k.batch_strides(0)), f.mul(row, a.strides[-2]))
        offsets = [t * a.strides[-2] for t in range(count)]
        weight = self.weights(batch, tile, column, masks)
        columns = [f.add(column, j * k.lanes) for j in range(len(masks))]
        places = [(j, t, [*batch, f.add(row, t), at]) for j, at in enumerate(columns) for t in range(count)]
        for _, _, index in () if k.shares_chunks else places:  # a burst of lines would keep weights waiting
            self.epilogue.prefetch(self.out, index)
        rows = f.address(self.a, start, a.dtype)
        if k.chunks == 1:
            self.multiply(acc, rows, offsets, self.part_of(weight, 0, k.depth))
            self.finish(acc, places, masks)
        else:
            self.add_part(acc, places, masks, rows, offsets, weight)

    def add_part(
        self, acc: Accumulators, places: Places, masks: Masks, rows: ir.Value, offsets: list[int], weight: LoadWeight
    ) -> None:
        """A part of K: goes on with the sums that the output holds, which the last part finishes."""
        f, k = self.f, self.k
        start = f.mul(self.chunk, k.chunk_depth)
        last = f.b.icmp_signed("==", f.value(self.chunk), f.value(k.chunks - 1))
        if k.shares_chunks and k.epilogue.ins:
            with f.when(last):
                for _, _, index in places:
                    self.epilogue.prefetch(None, index)
        with f.when(f.b.icmp_signed(">", f.value(self.chunk), I64(0))):
            for j, t, index in places:
                acc.put(j, t, f.load(self.out, f.dot(index, k.out.strides), k.out.dtype, k.lanes, masks[j]))
        depth: Any = f.minimum(k.chunk_depth, f.sub(k.depth, start))  # a number that the code computes
        part = f.address(rows, f.mul(start, k.a.strides[-1]), k.a.dtype)
        acc.multiply_add(part, offsets, k.a.strides[-1], depth, self.part_of(weight, start, k.chunk_depth))
        with f.when(last):
            self.finish(acc, places, masks)
        with f.when(f.b.not_(last)):
            for j, t, index in places:
                f.store(acc.value(j, t), self.out, f.dot(index, k.out.strides), k.out.dtype, k.lanes, masks[j])

    def part_of(self, weight: LoadWeight, start: Index, steps: Index) -> LoadWeight:
        """What loads the weights of a chunk that begins with element `start` of K."""
        f = self.f
        if self.pace and isinstance(weight, PackedStream):
            weight = self.pace.part_of(weight, start, self.number, steps)
        elif self.k.chunks > 1:
            return lambda c, j: weight(f.add(start, c), j)
        if self.copied is None:
            return weight
        assert isinstance(weight, PackedStream)
        return replace(weight, base=self.copied, dtype=self.k.sums, follows=False)

    def finish(self, acc: Accumulators, places: Places, masks: Masks) -> None:
        """Stores the sums with the epilogue applied."""
        f, k = self.f, self.k
        for j, t, index in places:
            value = self.epilogue.apply(acc.value(j, t), index, masks[j])
            f.store(value, self.out, f.dot(index, k.out.strides), k.out.dtype, k.lanes, masks[j])

    def multiply(self, acc: Accumulators, rows: ir.Value, offsets: list[int], weight: LoadWeight) -> None:
        """Adds the products of all K, of rows at `offsets` from `rows` on."""
        acc.multiply_add(rows, offsets, self.k.a.strides[-1], self.k.depth, weight)

    def initial(self, column: Index, masks: Masks) -> list[ir.Value]:
        """The bias of each block of columns, or zero; less what pairs of weights sum to, which lies behind them."""
        f, k = self.f, self.k
        starts = self.biases(column, masks)
        if self.pairs is None:
            return starts
        behind = f.address(self.b, k.depth * k.padded_columns, k.weight_type)
        at = [f.add(column, j * k.lanes) for j in range(len(masks))]
        return [f.b.sub(start, f.load(behind, each, k.sums, k.lanes)) for start, each in zip(starts, at, strict=True)]

    def biases(self, column: Index, masks: Masks) -> list[ir.Value]:
        """The bias of each block of columns, or zero."""
        f, k = self.f, self.k
        if self.bias is None:
            return [zeros(vector(register_type(k.sums), k.lanes))] * len(masks)
        whole, dtype = k.packed[k.op.factors], k.ins[k.op.factors].dtype
        return [
            f.load(self.bias, f.add(column, j * k.lanes), dtype, k.lanes, None if whole else mask)
            for j, mask in enumerate(masks)
        ]

    def stream(self, batch: list[Index], tile: Index) -> ir.Value:
        """Where the packed columns of a tile begin."""
        f, k = self.f, self.k
        before = f.mul(tile, k.tile[0] * k.lanes * k.depth)
        return f.address(self.b, f.add(f.dot(batch, k.batch_strides(1)), before), k.weight_type)

    def weights(self, batch: list[Index], tile: Index, column: Index, masks: list[ir.Value | None]) -> LoadWeight:
        """The function that loads `b` at an element of K, for a block of the tile's columns."""
        f, k = self.f, self.k
        if k.packed[1]:
            return PackedStream(f, self.stream(batch, tile), k.tile[0], k.depth, k.weight_type, k.lanes, follows=True)
        (depth_stride, column_stride), dtype = k.ins[1].strides[-2:], k.ins[1].dtype
        start = f.dot(batch, k.batch_strides(1))
        base = f.address(self.b, f.add(start, f.mul(column, column_stride)), dtype)
        assert column_stride == 1

        def row(depth: Index, j: int, dtype: np.dtype = dtype) -> ir.Value:
            return f.load(base, f.add(f.mul(depth, depth_stride), j * k.lanes), dtype, k.lanes, masks[j])

        def pair(c: Index, j: int) -> ir.Value:
            return joined_words(f, *(row(f.add(f.mul(c, 2), half), j, HALF_WORD) for half in range(2)))

        return pair if k.in_words else row
