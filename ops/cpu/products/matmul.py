"""Matrix products: rows of `a` are the pixels and columns of `b` the output channels of a register tile.

A constant `b` is packed as one stream per OB vectors of columns; otherwise its rows are read in place.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from llvmlite import ir

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I64, Index, computed_type, register_type, vector, zeros
from brickrt.ops.cpu.emit.sizes import Size
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.operands.epilogue import Epilogue
from brickrt.ops.cpu.products.live_taps import tile_place
from brickrt.ops.cpu.products.register_tile import Accumulators, LoadWeight, PackedStream
from brickrt.ops.cpu.products.row_tiles import WIDEST, RepeatedTiles, RowWindow, choose_tile, common_cut
from brickrt.ops.cpu.products.rows.pace import Pace, even_steps, share_chunks
from brickrt.ops.cpu.products.rows.short_rows import RowTiles
from brickrt.ops.cpu.products.words.choose_dot import left_registers, word_dot
from brickrt.ops.cpu.products.words.pair_dot import HALF_WORD, joined_pair
from brickrt.ops.cpu.products.words.words import (
    WORD,
    in_words,
    multiplies_integers,
    multiplies_pairs,
    pack_words,
    word_elements,
)
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.product_types import SUMS
from brickrt.ops.types import Boxes, OpenNumber

ROWS = RowWindow(1, 1, 1, 1, 0)
Masks = list[ir.Value | None]
"""One per block of columns."""
Places = list[tuple[int, int, list[Index]]]
"""Block, row and index of each vector of a tile."""
MOST_FEATURES = 128
SET_BYTES, WAYS = 4096, 8  # so far apart, rows of `a` share a set of L1, which holds so many of their lines
DEPTH, LONG_DEPTH = 512, 4096
"""Elements of K between two sweeps over a box, where K is as long as the second or longer and `b` is computed."""
MOST_POINTERS = 10
"""Rows of a tile where their distance in `a` is a size: each has a register for its address, and of 11 some spill."""


@dataclass(frozen=True)
class MatMulKernel(Kernel):
    """`shape_class` is (align, rows, ragged): `align` as in `choose_tile`, `rows` the rows of a box; `ragged` where
    columns are cut inside blocks of lanes. `decided` are `tile` and `shares_chunks`."""

    op: MatMul

    sized: ClassVar[bool] = True
    compiles_quickly: ClassVar[bool] = True

    @property
    def open_classes(self) -> Sequence[int]:
        """See `Kernel`: the tile is decided, and rows are sizes, unless K is swept in parts: tiles for any number of
        rows may cover some of them twice, and would add to their sums twice."""
        return (0, 1) if self.chunks == 1 or self.shares_chunks else (0,)

    def open_dims(self, i: int | None) -> Sequence[int]:
        """See `Kernel`; where `b` is a constant, so are K and the columns. Few whole vectors are taken for the features
        of a head of attention, which are known, unless there are as many rows: those are taken for tokens."""
        if i is not None and 1 < i < self.op.main:
            return ()
        shape = (self.out if i is None else self.ins[i]).shape
        if self.packed[1]:
            return range(len(shape) - 1)
        rows = self.out.shape[-2]
        return [d for d, n in enumerate(shape) if n > MOST_FEATURES or n % self.lanes or n == rows]

    def decisions(self) -> tuple[Any, ...]:
        """See `Kernel`."""
        return self.tile, self.shares_chunks

    @classmethod
    def classify(
        cls, op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes, isa: Isa
    ) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """Boxes by their rows."""
        align = common_cut(boxes, -1, out.shape[-1], isa.lanes)
        rows, which = np.unique(boxes.extents[:, -2], return_inverse=True)
        inner_ends = boxes.hi[:, -1][boxes.hi[:, -1] < out.shape[-1]]
        ragged = bool(np.any(boxes.lo[:, -1] % isa.lanes) or np.any(inner_ends % isa.lanes))
        return which.reshape(-1), [(align, int(r), int(ragged)) for r in rows]

    @property
    def ragged(self) -> bool:
        """Whether boxes cut columns inside a vector."""
        return bool(self.shape_class[2])

    @property
    def columns(self) -> int:
        """N, columns of the product."""
        return self.out.shape[-1]

    @property
    def depth(self) -> int:
        """K, what the product sums over, or words of it."""
        return self.a.shape[-1]

    @property
    def integer(self) -> bool:
        """Whether bytes are multiplied and summed as integers."""
        return multiplies_integers(self.ins)

    @cached_property
    def in_words(self) -> bool:
        """Whether tiles multiply words of several elements of K: bytes, or bfloat16 in pairs."""
        return self.integer or multiplies_pairs(self.ins, len(self.ins[0].shape) - 1)

    @cached_property
    def a(self) -> Operand:
        """The first factor as tiles read it."""
        return in_words(self.ins[0], len(self.ins[0].shape) - 1) if self.in_words else self.ins[0]

    @property
    def weight_type(self) -> np.dtype:
        """The type of a packed `b` as tiles read it."""
        return WORD if self.in_words else self.ins[1].dtype

    @property
    def sums(self) -> np.dtype:
        """The type of sums in registers."""
        return SUMS if self.integer else computed_type(self.ins[0].dtype)

    @property
    def blocks(self) -> int:
        """Vectors of columns."""
        return -(-self.columns // self.lanes)

    @cached_property
    def tile(self) -> tuple[int, int]:
        """(OB, T) of `choose_tile`; equal for all shape classes, since they share the packed columns."""
        if self.decided:
            return self.decided[0]
        isa = left_registers(self.isa, self.integer) if self.in_words else self.isa
        limit = WAYS if self.a.strides[-2] * self.a.dtype.itemsize % SET_BYTES == 0 else WIDEST
        if len(self.a.shape) - 1 in self.open_dims(0):
            limit = min(limit, MOST_POINTERS)
        return choose_tile(self.out.shape[-2], self.blocks, self.shape_class[0], isa, self.sums, limit=limit)

    @cached_property
    def chunks(self) -> int:
        """Sweeps over the rows and columns of a box, each of a part of K; between them the output keeps the sums. With
        one alone, each tile of rows would read columns of a computed `b` that have left the caches since the last."""
        if self.shares_chunks:
            return -(-self.depth // self.chunk_depth)
        return -(-self.depth // DEPTH) if self.keeps_sums and not self.packed[1] and self.depth >= LONG_DEPTH else 1

    @property
    def keeps_sums(self) -> bool:
        """Whether the output can keep sums between two sweeps."""
        return self.sums == self.out.dtype and not self.in_words

    @property
    def chunk_depth(self) -> int:
        """Elements of K of a chunk."""
        step = self.tile[0] * self.lanes * self.weight_type.itemsize
        return even_steps(self.depth, step) if self.shares_chunks else DEPTH

    @cached_property
    def shares_chunks(self) -> bool:
        """Whether all rows of a box are swept for a chunk of a tile's weights before the next (`rows/pace.py`)."""
        if self.decided:
            return self.decided[1]
        plain = self.keeps_sums and self.packed[1] and self.op.factors == 2
        return plain and share_chunks(self.isa, self.tile, self.out.shape[-2], self.depth)

    @cached_property
    def epilogue(self) -> Epilogue:
        """What is applied to the sums."""
        return Epilogue.of(self.op, self.ins, self.out, self.lanes)

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        """Factors [batch…, K, N] → [batch…, tile, K, OB*lanes], zero beyond N; the bias up to whole tiles."""
        if i == 1 and self.in_words:
            return self.in_tiles(pack_words(array, array.ndim - 2)).view(array.dtype)
        if 0 < i < self.op.factors:
            return self.in_tiles(array)
        if i == self.op.factors and self.op.bias:
            return np.pad(array, (0, self.padded_columns - self.columns))
        return super().pack(i, array)

    def in_tiles(self, array: np.ndarray) -> np.ndarray:
        """A matrix per batch with the columns of each register tile together."""
        missing = self.padded_columns - self.columns
        whole = np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)]) if missing else array
        width = self.tile[0] * self.lanes
        split = whole.reshape(*array.shape[:-1], whole.shape[-1] // width, width)
        return np.ascontiguousarray(np.moveaxis(split, -2, -3))

    @property
    def any_columns(self) -> bool:
        """Whether the number of columns is a size: then the last block may be whole or not."""
        return isinstance(self.columns, OpenNumber)

    @property
    def padded_columns(self) -> int:
        """Columns of whole tiles."""
        width = self.tile[0] * self.lanes
        return -(-self.columns // width) * width

    def packing(self, i: int) -> Hashable:
        """See `Kernel`: columns, and those of a tile."""
        return super().packing(i), self.columns, self.tile[0], self.integer

    def packed_elements(self, i: int) -> int:
        """See `Kernel`."""
        if i == 1 and self.in_words:
            each = word_elements(self.ins[1].dtype)
            return math.prod(self.ins[1].shape[:-2]) * self.depth * self.padded_columns * each
        if 0 < i < self.op.factors:
            return math.prod(self.ins[i].shape[:-1]) * self.padded_columns
        return self.padded_columns if i == self.op.factors and self.op.bias else super().packed_elements(i)

    def batch_strides(self, i: int) -> list[int]:
        """Strides of input `i` along the batch dimensions of the output, 0 where it broadcasts."""
        operand, rank = self.a if i == 0 else self.ins[i], self.out.type.rank
        strides = list(operand.strides[:-2])
        if i == 1 and self.packed[1]:
            matrix = self.padded_columns * self.depth
            strides = [math.prod(operand.shape[k + 1 : -2]) * matrix for k in range(len(strides))]
        strides = [0 if extent == 1 else s for extent, s in zip(operand.shape, strides, strict=False)]
        return [0] * (rank - 2 - len(strides)) + strides

    def emit(self, f: FunctionEmitter) -> None:
        """See `MatMulBody`."""
        MatMulBody(self, f).emit()


class MatMulBody:
    """Emits a matrix product."""

    def __init__(self, kernel: MatMulKernel, f: FunctionEmitter) -> None:
        self.k, self.f = kernel, f
        self.out, self.a, self.b = (f.pointer(i) for i in range(3))
        self.bias = f.pointer(1 + kernel.op.factors) if kernel.op.bias else None
        self.dot = word_dot(f, kernel.isa, kernel.integer) if kernel.in_words else None
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
            with f.loop(f.div(first, width), f.minimum(whole, f.div(f.add(last, width - 1), width))) as t:
                self.rows(batch, row, runs, t, ob, masked=False)
            if rest:
                with f.when(f.b.icmp_signed(">", last, f.value(whole * width))):
                    self.rows(batch, row, runs, whole, rest, masked)

    def runs(self, rows: int | Size) -> list[RepeatedTiles]:
        """The tiles of all rows of the box."""
        ob, most = self.k.tile
        return RowTiles(most, ob, self.k.isa, not self.k.shares_chunks).runs(ROWS, (rows, 0, 0, 0))

    def rows(self, batch: list[Index], row: Index, runs: list, tile: Index, blocks: int, masked: bool) -> None:
        """All rows of the box by one tile of `blocks` blocks of columns."""
        f, shared = self.f, self.k.shares_chunks
        with f.loop(0, self.k.chunks if shared else 1) as chunk:
            self.chunk = chunk if shared else self.chunk
            for i, run in enumerate(runs):
                with f.loop(0, run.repeat) as r:
                    start, _ = tile_place(f, run, row, 0, r)
                    self.number = self.pace.number(i, r) if self.pace else 0
                    self.tile(batch, start, run.tile.count, tile, blocks, masked)

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
            if self.pace and isinstance(weight, PackedStream):
                weight = self.pace.part_of(weight, 0, self.number, k.depth)
            self.multiply(acc, rows, offsets, weight)
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
        shared: LoadWeight | None = None
        if self.pace and isinstance(weight, PackedStream):
            shared = self.pace.part_of(weight, start, self.number, k.chunk_depth)
        acc.multiply_add(part, offsets, k.a.strides[-1], depth, shared or (lambda c, j: weight(f.add(start, c), j)))
        with f.when(last):
            self.finish(acc, places, masks)
        with f.when(f.b.not_(last)):
            for j, t, index in places:
                f.store(acc.value(j, t), self.out, f.dot(index, k.out.strides), k.out.dtype, k.lanes, masks[j])

    def finish(self, acc: Accumulators, places: Places, masks: Masks) -> None:
        """Stores the sums with the epilogue applied."""
        f, k = self.f, self.k
        for j, t, index in places:
            value = self.epilogue.apply(acc.value(j, t), index, masks[j])
            f.store(value, self.out, f.dot(index, k.out.strides), k.out.dtype, k.lanes, masks[j])

    def multiply(self, acc: Accumulators, rows: ir.Value, offsets: list[int], weight: LoadWeight) -> None:
        """Adds the products of all K, of rows at `offsets` from `rows` on."""
        acc.multiply_add(rows, offsets, self.k.a.strides[-1], self.k.depth, weight)

    def initial(self, column: Index, masks: list[ir.Value | None]) -> list[ir.Value]:
        """The bias of each block of columns, or zero."""
        f, k = self.f, self.k
        if self.bias is None:
            return [zeros(vector(register_type(k.sums), k.lanes))] * len(masks)
        whole, dtype = k.packed[k.op.factors], k.ins[k.op.factors].dtype
        return [
            f.load(self.bias, f.add(column, j * k.lanes), dtype, k.lanes, None if whole else mask)
            for j, mask in enumerate(masks)
        ]

    def weights(self, batch: list[Index], tile: Index, column: Index, masks: list[ir.Value | None]) -> LoadWeight:
        """The function that loads `b` at an element of K, for a block of the tile's columns."""
        f, k = self.f, self.k
        start = f.dot(batch, k.batch_strides(1))
        if k.packed[1]:
            width = k.tile[0] * k.lanes
            base = f.address(self.b, f.add(start, f.mul(tile, width * k.depth)), k.weight_type)
            return PackedStream(f, base, k.tile[0], k.depth, k.weight_type, k.lanes, follows=True)
        (depth_stride, column_stride), dtype = k.ins[1].strides[-2:], k.ins[1].dtype
        base = f.address(self.b, f.add(start, f.mul(column, column_stride)), dtype)
        assert column_stride == 1

        def row(depth: Index, j: int, dtype: np.dtype = dtype) -> ir.Value:
            return f.load(base, f.add(f.mul(depth, depth_stride), j * k.lanes), dtype, k.lanes, masks[j])

        def pair(c: Index, j: int) -> ir.Value:
            return joined_pair(f, *(row(f.add(f.mul(c, 2), half), j, HALF_WORD) for half in range(2)))

        return pair if k.in_words else row


@kernel_for(MatMul)
def _choose(op: Op, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    return MatMulKernel
