"""How lanes add the products of two bfloat16 each to a float32.

AVX-512 BF16  vdpbf16ps: products and sums each rounded to float32, subnormal ones counted as 0
any           both halves of a word as float32, with two multiply-adds; products are exact, sums rounded
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import BFLOAT, FLOAT, I32, fill, vector
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.products.words.word_dot import Parts, WordDot

UPPER = 0xFFFF0000
HALF_WORD = np.dtype(np.uint16)


def joined_words(f: FunctionEmitter, first: ir.Value, second: ir.Value) -> ir.Value:
    """Words of two vectors of bfloat16 that lie in rows of their own, both read as `HALF_WORD`."""
    wide = vector(I32, first.type.count)
    return f.b.or_(f.b.zext(first, wide), f.b.shl(f.b.zext(second, wide), fill(wide, 16)))


@dataclass(frozen=True)
class BfloatDot(WordDot):
    """Products of pairs on any processor: a bfloat16 is the upper half of a float32."""

    @staticmethod
    def of(f: FunctionEmitter, isa: Isa) -> BfloatDot:
        """The quickest way that a processor has."""
        return (_DotProduct if isa.multiplies_bfloat16 else BfloatDot)(f, isa)

    def pixel(self, word: ir.Value) -> Parts:
        """Both elements as float32, the first one first."""
        b, kind = self.f.b, vector(FLOAT, self.isa.lanes)
        halves = b.shl(word, fill(word.type, 16)), b.and_(word, fill(word.type, UPPER))
        return [b.bitcast(half, kind) for half in halves]

    def weight(self, word: ir.Value) -> Parts:
        """As `pixel`."""
        return self.pixel(word)

    def add(self, total: ir.Value, pixel: Parts, weight: Parts) -> ir.Value:
        """The first elements' product is added first."""
        for x, w in zip(pixel, weight, strict=True):
            total = self.f.fma(x, w, total)
        return total


class _DotProduct(BfloatDot):
    def pixel(self, word: ir.Value) -> Parts:
        return [self.f.b.bitcast(word, vector(BFLOAT, 2 * self.isa.lanes))]

    def add(self, total: ir.Value, pixel: Parts, weight: Parts) -> ir.Value:
        # The pixel comes last: it is the factor that the instruction can broadcast from memory.
        return self.f.intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", total.type, total, weight[0], pixel[0])
