"""What the pairs of a matrix's rows sum to, for all rows of a box, before a product reads them."""

from __future__ import annotations

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I32, Index
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.products.words.paired_bytes import PixelPairs
from brickrt.ops.cpu.products.words.words import WORD


def sum_row_pairs(f: FunctionEmitter, a: Operand, rows: ir.Value, count: Index, pairs: PixelPairs) -> None:
    """Emits the sums of `count` rows of words from an address on, a vector of words at a time."""
    lanes = pairs.dot.isa.lanes
    depth: Index = a.shape[-1]
    whole = f.div(depth, lanes)
    rest = f.tail_mask(f.sub(depth, f.mul(whole, lanes)), lanes)
    with f.loop(0, count) as row:
        words = f.address(rows, f.mul(row, a.strides[-2]), a.dtype)
        tail = f.load(words, f.mul(whole, lanes), WORD, lanes, rest)

        def load(step: Index, words: ir.Value = words) -> ir.Value:
            return f.load(words, f.mul(step, lanes), WORD, lanes)

        total = pairs.summed(load, whole, tail)
        f.store(_all_lanes(f, total), pairs.start, row, WORD)


def _all_lanes(f: FunctionEmitter, vector: ir.Value) -> ir.Value:
    """The sum of all lanes."""
    count = vector.type.count
    while count > 1:
        count //= 2
        low, high = (f.shuffle(vector, vector, range(start, start + count)) for start in (0, count))
        vector = f.b.add(low, high)
    return f.b.extract_element(vector, I32(0))
