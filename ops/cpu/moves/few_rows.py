"""Rows of bytes that become the first channels of blocks: up to four of them, one behind the other, are a word.

rows  r r r r …      words  rgb0 rgb0 rgb0 rgb0 …      blocks  rgb0 0000 0000 0000  rgb0 0000 0000 0000 …
      g g g g …
      b b b b …
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I32, Index, fill, vector, zeros
from brickrt.ops.cpu.moves.spans import Mover, StridedMemory

WORD = np.dtype(np.int32)
BITS = 8  # of a byte
AVX512_LANES = 16  # of a vector of words, that has masks for bytes too


@dataclass(frozen=True)
class FewRows:
    """A copy of `count` rows of bytes, `stride` apart, to blocks of as many channels as a vector has words."""

    mover: Mover
    count: int
    stride: Index

    def emit(self, src: StridedMemory, dst: StridedMemory, columns: Index) -> None:
        """As many columns as a vector has words, or the first of them; zeros behind them in a block."""
        f, lanes = self.mover.f, self.mover.isa.lanes
        mask = None if columns == lanes else f.tail_mask(columns, lanes)
        words, each = self._words(f, src, mask), lanes // WORD.itemsize
        for first in range(0, lanes, WORD.itemsize):
            picked = [first + lane // each if lane % each == 0 else lanes for lane in range(lanes)]
            left = None if mask is None else f.tail_mask(f.mul(f.sub(columns, first), each), lanes)
            to = f.address(dst.base, f.add(dst.offset, first * lanes), self.mover.dtype)
            f.store(f.shuffle(words, zeros(words.type), picked), to, 0, WORD, lanes, left)

    def _words(self, f: FunctionEmitter, src: StridedMemory, mask: ir.Value | None) -> ir.Value:
        """The bytes of each column, those of the first row lowest."""
        lanes, dtype = self.mover.isa.lanes, self.mover.dtype
        kind = vector(I32, lanes)
        words = zeros(kind)
        for row in range(self.count):
            line = f.load(src.base, f.add(src.offset, f.mul(self.stride, row)), dtype, lanes, mask)
            words = f.b.or_(words, f.b.shl(f.b.zext(line, kind), fill(kind, BITS * row)))
        return words
