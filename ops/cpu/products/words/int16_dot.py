"""How lanes add the products of two 16-bit integers each.

VNNI      vpdpwssd: products, and sums of them
16 bits   vpmaddwd: products of AVX2 and AVX-512, which are added then
any       half by half
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I16, I32, fill, vector
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.products.words.word_dot import Parts, WordDot


@dataclass(frozen=True)
class Int16Dot(WordDot):
    """Products of words of two signed 16-bit integers on any processor; sums wrap to 32 bits."""

    @staticmethod
    def of(f: FunctionEmitter, isa: Isa) -> Int16Dot:
        """The quickest way that a processor has."""
        kind = _Accumulated if isa.multiplies_bytes else _Whole if isa.multiplies_words else Int16Dot
        return kind(f, isa)

    def pixel(self, word: ir.Value) -> Parts:
        """Both integers, widened."""
        b, half = self.f.b, fill(word.type, 16)
        return [b.ashr(b.shl(word, half), half), b.ashr(word, half)]

    def weight(self, word: ir.Value) -> Parts:
        """As `pixel`."""
        return self.pixel(word)

    def add(self, total: ir.Value, pixel: Parts, weight: Parts) -> ir.Value:
        """The sums with the products added."""
        for x, w in zip(pixel, weight, strict=True):
            total = self.f.b.add(total, self.f.b.mul(x, w))
        return total


class _Whole(Int16Dot):
    def pixel(self, word: ir.Value) -> Parts:
        return [self.f.b.bitcast(word, vector(I16, 2 * self.isa.lanes))]

    def add(self, total: ir.Value, pixel: Parts, weight: Parts) -> ir.Value:
        return self.f.b.add(total, adjacent_products(self.f, self.isa, pixel[0], weight[0]))


class _Accumulated(Int16Dot):
    def pixel(self, word: ir.Value) -> Parts:
        return [word]

    def add(self, total: ir.Value, pixel: Parts, weight: Parts) -> ir.Value:
        name = f"llvm.x86.avx512.vpdpwssd.{32 * self.isa.lanes}"
        return self.f.intrinsic(name, total.type, total, pixel[0], weight[0])


def adjacent_products(f: FunctionEmitter, isa: Isa, x: ir.Value, y: ir.Value) -> ir.Value:
    """Sums of the products of two adjacent 16-bit integers each (vpmaddwd)."""
    name = "llvm.x86.avx512.pmaddw.d.512" if isa.lanes == 16 else "llvm.x86.avx2.pmadd.wd"
    return f.intrinsic(name, vector(I32, isa.lanes), x, y)
