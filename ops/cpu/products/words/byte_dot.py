"""How lanes add the products of four bytes each, for processors with and without an instruction for it. All are exact.

VNNI      vpdpbusd: unsigned pixels times signed weights
16 bits   even and odd bytes apart, widened; vpmaddwd multiplies two each and adds both to 32 bits
any       byte by byte in 32 bits
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I16, fill, vector
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.products.words.int16_dot import adjacent_products
from brickrt.ops.cpu.products.words.word_dot import Parts, WordDot

BYTES = 4  # of a word


@dataclass(frozen=True)
class ByteDot(WordDot):
    """Products of words of four bytes on any processor, unsigned in the input and signed in the weights."""

    @staticmethod
    def of(f: FunctionEmitter, isa: Isa) -> ByteDot:
        """The quickest way that a processor has."""
        kind = _Vnni if isa.multiplies_bytes else WidenedByteDot if isa.multiplies_words else ByteDot
        return kind(f, isa)

    def pixel(self, word: ir.Value) -> Parts:
        """Unsigned bytes, the same in all lanes."""
        ones = fill(word.type, 255)
        return [self.f.b.and_(self.f.b.lshr(word, fill(word.type, 8 * k)), ones) for k in range(BYTES)]

    def weight(self, word: ir.Value) -> Parts:
        """Signed bytes."""
        top = fill(word.type, 24)
        return [self.f.b.ashr(self.f.b.shl(word, fill(word.type, 24 - 8 * k)), top) for k in range(BYTES)]

    def add(self, total: ir.Value, pixel: Parts, weight: Parts) -> ir.Value:
        """The sums with the products added."""
        for x, w in zip(pixel, weight, strict=True):
            total = self.f.b.add(total, self.f.b.mul(x, w))
        return total

    def add_lanes(self, total: ir.Value, pixel: ir.Value, weight: ir.Value) -> ir.Value:
        """The sums with the product of each lane's one byte added; both factors are widened to 32 bits."""
        return self.f.b.add(total, self.f.b.mul(pixel, weight))


class _Vnni(ByteDot):
    def pixel(self, word: ir.Value) -> Parts:
        return [word]

    def weight(self, word: ir.Value) -> Parts:
        return [word]

    def add(self, total: ir.Value, pixel: Parts, weight: Parts) -> ir.Value:
        name = f"llvm.x86.avx512.vpdpbusd.{32 * self.isa.lanes}"
        return self.f.intrinsic(name, total.type, total, pixel[0], weight[0])

    def add_lanes(self, total: ir.Value, pixel: ir.Value, weight: ir.Value) -> ir.Value:
        return self.add(total, [pixel], [weight])  # the pixel's other three bytes are zero


class WidenedByteDot(ByteDot):
    """Even and odd bytes apart."""

    def _halves(self, word: ir.Value) -> ir.Value:
        return self.f.b.bitcast(word, vector(I16, 2 * self.isa.lanes))

    def pixel(self, word: ir.Value) -> Parts:
        """Even bytes, and odd ones, as 16-bit integers."""
        both = self._halves(word)
        return [self.f.b.and_(both, fill(both.type, 255)), self.f.b.lshr(both, fill(both.type, 8))]

    def weight(self, word: ir.Value) -> Parts:
        """As `pixel`, signed."""
        both, eight = self._halves(word), fill(vector(I16, 2 * self.isa.lanes), 8)
        return [self.f.b.ashr(self.f.b.shl(both, eight), eight), self.f.b.ashr(both, eight)]

    def add(self, total: ir.Value, pixel: Parts, weight: Parts) -> ir.Value:
        """See `WordDot`."""
        for x, w in zip(pixel, weight, strict=True):
            total = self.f.b.add(total, adjacent_products(self.f, self.isa, x, w))
        return total

    def add_lanes(self, total: ir.Value, pixel: ir.Value, weight: ir.Value) -> ir.Value:
        """See `ByteDot`."""
        return self.add(total, [self._halves(pixel)], [self._halves(weight)])  # the upper half of the pixel is zero
