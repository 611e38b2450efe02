"""Products of bytes with half as many multiplications, by S. Winograd's inner product ("A new algorithm for inner
product", IEEE Transactions on Computers, 1968), exact:

    x₀w₀ + x₁w₁ = (x₀ + w₁)(x₁ + w₀) - x₀x₁ - w₀w₁

The sums of x₀x₁ are those of a pixel, made once for all outputs; the sums of w₀w₁ are those of an output channel, and
lie behind its packed weights. Processors that have one unit to multiply 16-bit integers and three to add them are
faster so. Sums wrap to 32 bits, as all of integers do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I32, Index, vector, zeros
from brickrt.ops.cpu.products.words.byte_dot import WidenedByteDot
from brickrt.ops.cpu.products.words.int16_dot import adjacent_products
from brickrt.ops.cpu.products.words.word_dot import Parts
from brickrt.ops.cpu.products.words.words import WORD


class PairedByteDot(WidenedByteDot):
    """Adds products of words, and the products of their pairs, which are no part of the sums."""

    def add(self, total: ir.Value, pixel: Parts, weight: Parts) -> ir.Value:
        """The sums with both added."""
        b, (even, odd), (even_weight, odd_weight) = self.f.b, pixel, weight
        first, second = b.add(even, odd_weight), b.add(odd, even_weight)
        return b.add(total, adjacent_products(self.f, self.isa, first, second))


def weight_pairs(weights: np.ndarray, axis: int) -> np.ndarray:
    """The sums of the products of weights' pairs along `axis`, 0 or 1, that of the input's channels; the other one is
    that of outputs. int8 → int32."""
    moved = np.moveaxis(weights, axis, 0)
    moved = np.pad(moved, [(0, moved.shape[0] % 2), *[(0, 0)] * (moved.ndim - 1)]).astype(np.int32)
    return (moved[::2] * moved[1::2]).sum(axis=(0, *range(2, moved.ndim)), dtype=np.int32)


@dataclass(frozen=True)
class PixelPairs:
    """Emits the sums of the products of pixels' pairs, int32 from `start` on, and their use."""

    f: FunctionEmitter
    dot: PairedByteDot
    start: ir.Value

    def summed(self, load: Callable[[Index], ir.Value], steps: Index, tail: ir.Value | None = None) -> ir.Value:
        """The products of vectors' pairs added up, of `steps` that are loaded and a `tail`."""
        f, kind = self.f, vector(I32, self.dot.isa.lanes)
        total = f.variable(zeros(kind))
        with f.loop(0, steps) as step:
            f.change(total, f.b.add(f.read(total), self.of(load(step))))
        return f.read(total) if tail is None else f.b.add(f.read(total), self.of(tail))

    def of(self, words: ir.Value) -> ir.Value:
        """The products of the pairs of a vector of words."""
        return adjacent_products(self.f, self.dot.isa, *self.dot.pixel(words))

    def less(self, value: ir.Value, number: Index) -> ir.Value:
        """A vector of outputs of the pixel of a number, without what its pairs sum to."""
        f, lanes = self.f, self.dot.isa.lanes
        return f.b.sub(value, f.splat(f.load(self.start, number, WORD), lanes))
