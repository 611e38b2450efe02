"""What identifies the kernel of a matrix product, and what it decides. Rows of `a` are the pixels and columns of `b`
the output channels of a register tile.

A constant `b` is packed as one stream per OB vectors of columns; otherwise its rows are read in place.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.llvm_types import computed_type
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.operands.epilogue import Epilogue
from brickrt.ops.cpu.products.row_tiles import WIDEST_ROW, choose_tile, common_cut
from brickrt.ops.cpu.products.rows.pace import COPIED_TILES, even_steps, share_chunks
from brickrt.ops.cpu.products.words.choose_dot import left_registers
from brickrt.ops.cpu.products.words.words import (
    WORD,
    in_words,
    multiplies_integers,
    multiplies_pairs,
    word_elements,
)
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.product_types import SUMS
from brickrt.ops.types import Boxes, OpenNumber

FLOAT16, WIDENED = np.dtype(np.float16), np.dtype(np.float32)
MOST_FEATURES = 128
SET_BYTES, WAYS = 4096, 8  # so far apart, rows of `a` share a set of L1, which holds so many of their lines
DEPTH, LONG_DEPTH = 512, 4096
"""Elements of K between two sweeps over a box, where K is as long as the second or longer and `b` is computed."""
MOST_POINTERS = 10
"""Rows of a tile where their distance in `a` is a size: each has a register for its address, and of 11 some spill."""


@dataclass(frozen=True)
class MatMulScheme(Kernel):
    """`shape_class` is (align, rows, ragged): `align` as in `choose_tile`, `rows` the rows of a box; `ragged` where
    columns are cut inside blocks of lanes. `decided` are `tile`, `shares_chunks` and `copies_weights`."""

    op: MatMul

    sized: ClassVar[bool] = True
    compiles_quickly: ClassVar[bool] = True
    narrow_codes: ClassVar[int] = 4

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
        return self.tile, self.shares_chunks, self.copies_weights

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
    def pairs_bytes(self) -> bool:
        """Whether products of bytes are those of sums of pairs (`words/paired_bytes.py`)."""
        plain = self.packed[1] and self.op.factors == 2 and math.prod(self.ins[1].shape[:-2]) == 1
        return plain and self.isa.pairs_bytes and self.integer and self.a.strides[-1] == 1

    @property
    def workspace(self) -> int:
        """What the pairs of all rows sum to, or the weights of a tile and a chunk."""
        if self.copies_weights:
            steps = self.chunk_depth if self.shares_chunks else self.depth
            return steps * self.tile[0] * self.lanes * WIDENED.itemsize
        return self.out.shape[-2] * self.sums.itemsize * self.pairs_bytes

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
        limit = WAYS if self.a.strides[-2] * self.a.dtype.itemsize % SET_BYTES == 0 else WIDEST_ROW
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
        step = self.tile[0] * self.lanes * (WIDENED if self.copies_weights else self.weight_type).itemsize
        return even_steps(self.depth, step) if self.shares_chunks else DEPTH

    @cached_property
    def shares_chunks(self) -> bool:
        """Whether all rows of a box are swept for a chunk of a tile's weights before the next (`rows/pace.py`)."""
        if self.decided:
            return self.decided[1]
        plain = self.keeps_sums and self.packed[1] and self.op.factors == 2
        return plain and share_chunks(self.isa, self.tile, self.out.shape[-2], self.depth)

    @cached_property
    def copies_weights(self) -> bool:
        """Whether tiles read weights from the workspace: float16 ones, widened once for all rows of a box for the
        reasons of `ConvScheme.widens`."""
        if self.decided:
            return self.decided[2]
        plain = self.packed[1] and self.op.factors == 2 and self.weight_type == FLOAT16 and self.sums == WIDENED
        return bool(plain and self.isa.paces_weights and -(-self.shape_class[1] // self.tile[1]) >= COPIED_TILES)

    @cached_property
    def epilogue(self) -> Epilogue:
        """What is applied to the sums."""
        return Epilogue.of(self.op, self.ins, self.out, self.lanes)

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
            words = math.prod(self.ins[1].shape[:-2]) * self.depth + self.pairs_bytes
            return words * self.padded_columns * each
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
