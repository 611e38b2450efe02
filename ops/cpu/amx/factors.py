"""How elements become the words of tiles, by the type that is multiplied.

uint8 by int8   four bytes a word, summed in int32, exactly
bfloat16        two a word, summed in float32
float32         x = x0 + x1 + x2, each of them a bfloat16 with eight bits of x: exact, since x has 24. Six of the nine
                products of parts are summed; the others are less than the rounding of x·y (G. Henry, P. Tang and
                A. Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision
                computations", ARITH 2019)
float16         as weights of float32: w = w0 + w1, five products
halves          float32 where the model has float16: x0 + x1 are its first 16 bits, three products
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.amx.sizes import LANES, Factors
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I16, I32, fill
from brickrt.ops.cpu.products.words.words import pack_words
from brickrt.ops.operators.product_types import F16, F32

UPPER = 0xFFFF0000  # of a float32, the bits that a bfloat16 keeps
HALF_PLACE = 0x8000  # half of the last of them


def split_pixel(f: FunctionEmitter, factors: Factors, vectors: Sequence[ir.Value]) -> list[ir.Value]:
    """The parts of a unit of K of one pixel, which is given in vectors of LANES elements as they lie in memory: vectors
    that hold the bytes of a part each."""
    if factors.parts == 1:
        joined = list(vectors)
        while len(joined) > 1:
            joined = [f.shuffle(*pair, range(2 * pair[0].type.count)) for pair in zip(joined[::2], joined[1::2])]
        return joined
    halves = [parts_of(f, vector, factors.parts, factors.rounded) for vector in vectors]
    return [upper_halves(f, *pair) for pair in zip(*halves, strict=True)]


def split_weights(factors: Factors, array: np.ndarray) -> list[np.ndarray]:
    """The parts of weights [K, N], in words [K/word, N]; float16 stays as it is."""
    if factors.parts == 1 or array.dtype == F16:
        return [pack_words(array, 0)]
    found, rest = list[np.ndarray](), np.ascontiguousarray(array)
    for n in range(factors.weight_parts):
        part = _upper(rest, factors.rounded and n == 0)
        with np.errstate(invalid="ignore"):  # of an infinite weight nothing is left
            rest = np.where(np.isfinite(part), rest - part, np.float32(0))
        found.append(pack_words((part.view(np.uint32) >> 16).astype(np.uint16), 0))
    return found


def _upper(array: np.ndarray, rounded: bool) -> np.ndarray:
    """The first eight bits of elements, or the nearest that are not infinite for finite ones."""
    bits = array.view(np.uint32)
    part = (bits & np.uint32(UPPER)).view(F32)
    if not rounded:
        return part
    near = ((bits + np.uint32(HALF_PLACE)) & np.uint32(UPPER)).view(F32)
    return np.where(np.isfinite(near), near, part)


def upper_halves(f: FunctionEmitter, first: ir.Value, second: ir.Value) -> ir.Value:
    """The upper halves of elements of two vectors of float32, one vector's behind the other's."""
    kind = ir.VectorType(I16, 2 * LANES)
    return f.shuffle(f.b.bitcast(first, kind), f.b.bitcast(second, kind), range(1, 4 * LANES, 2))


def parts_of(f: FunctionEmitter, value: ir.Value, count: int, rounded: bool = False) -> list[ir.Value]:
    """The parts of a vector of float32, as float32, the first of them `rounded` to the nearest. Of an infinite one the
    second is NaN, as any product with it may be: see `recompute_sums.py`."""
    b, found = f.b, list[ir.Value]()
    kind, bits = ir.VectorType(FLOAT, LANES), ir.VectorType(I32, LANES)
    for n in range(count - 1):
        whole = b.bitcast(value, bits)
        if rounded and n == 0:
            whole = b.add(whole, fill(bits, HALF_PLACE))
        part = b.bitcast(b.and_(whole, fill(bits, UPPER)), kind)
        found.append(part)
        value = b.fsub(value, part)
    return [*found, value]
