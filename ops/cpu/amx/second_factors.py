"""Second factors that are not in tiles in memory: how a kernel brings them there, and reads them whole.

computed matrix      rows k, k+1, … of 16 columns become the words of a row of a tile, part by part
weights of float16   lie in tiles of one part, in words of two; each is exactly two parts (8 and 3 bits)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.amx.factors import UPPER, parts_of, upper_halves
from brickrt.ops.cpu.amx.scheme import CHANNEL_TILES, AmxScheme
from brickrt.ops.cpu.amx.sizes import LANES, ROW_BYTES, TILE_BYTES
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import BFLOAT16, FLOAT, HALF, I16, I32, I64, Index, fill, vector
from brickrt.ops.cpu.products.words.bfloat_dot import HALF_WORD
from brickrt.ops.operators.product_types import F16

BYTE = np.dtype(np.int8)
PAIR = 2  # halves of a word


class SecondFactor(ABC):
    """Emits the reads of a second factor, whose address is `pointer`."""

    def __init__(self, kernel: AmxScheme, f: FunctionEmitter) -> None:
        self.k, self.f, self.pointer = kernel, f, f.pointer(2)

    @property
    @abstractmethod
    def whole_units(self) -> Index:
        """Units of K that are read without a look at where K ends."""

    @abstractmethod
    def begin(self, batch: Sequence[Index], block: Index, blocks: int) -> None:
        """Words of an image's vectors of columns from `block` on come next."""

    @abstractmethod
    def words(self, tap: Index, unit: Index, row: Index, block: int, whole: bool) -> list[ir.Value]:
        """A row of the tiles of a unit of K, one of each part; zeros beyond K. Not `whole`: it may end in between."""

    @abstractmethod
    def elements(self, batch: Sequence[Index], channel: Index, tap: Index, c: Index) -> ir.Value:
        """Element `c` of K of the columns from `channel` on, in float32."""


class ComputedMatrix(SecondFactor):
    """A matrix [batch…, K, N] whose columns are adjacent. Of columns beyond the box none are read."""

    @property
    def whole_units(self) -> Index:
        """Units that end before K does."""
        return self.k.view.depth // self.k.factors.unit

    def matrix(self, batch: Sequence[Index]) -> ir.Value:
        """The address of an image's matrix; images may share one."""
        b = self.k.ins[1]
        strides = [0 if extent == 1 else s for extent, s in zip(b.shape[:-2], b.strides[:-2], strict=True)]
        offset = self.f.dot(batch, [0] * (len(batch) - len(strides)) + strides)
        return self.f.address(self.pointer, offset, b.dtype)

    def mask(self, channel: Index) -> ir.Value:
        """The lanes of columns from `channel` on that belong to the box."""
        f, (lo, hi) = self.f, self.k.view.channels(self.f)
        before = f.tail_mask(f.sub(lo, channel), LANES)
        return f.b.and_(f.tail_mask(f.sub(hi, channel), LANES), f.b.not_(before))

    def begin(self, batch: Sequence[Index], block: Index, blocks: int) -> None:
        """Columns are those of the box."""
        f = self.f
        channels = [f.mul(f.add(block, j), LANES) for j in range(blocks)]
        self.base = f.address(self.matrix(batch), channels[0], self.k.ins[1].dtype)
        self.masks = [self.mask(channel) for channel in channels]

    def words(self, tap: Index, unit: Index, row: Index, block: int, whole: bool) -> list[ir.Value]:
        """Rows of the matrix are joined."""
        f, factors, dtype = self.f, self.k.factors, self.k.ins[1].dtype
        raw = HALF_WORD if dtype == BFLOAT16 else dtype
        each = 4 // factors.bytes
        first = f.add(f.mul(unit, factors.unit), f.mul(row, each))
        rows = []
        for i in range(each):
            at, mask = f.add(first, i), self.masks[block]
            if not whole:
                there = f.b.icmp_signed("<", f.value(at), f.value(self.k.view.depth))
                mask = f.b.and_(mask, f.splat(there, LANES))
            offset = f.add(f.mul(at, self.k.ins[1].strides[-2]), block * LANES)
            rows.append(f.load(self.base, offset, raw, LANES, mask))
        if factors.weight_parts == 1:
            return [self.joined(rows)]
        parts = zip(*(parts_of(f, value, factors.weight_parts, factors.rounded) for value in rows), strict=True)
        return [self.upper(*pair) for pair in parts]

    def joined(self, rows: Sequence[ir.Value]) -> ir.Value:
        """Words of elements that lie in rows of their own, the first in the lowest bits."""
        f, wide = self.f, vector(I32, LANES)
        total = f.b.zext(rows[0], wide)
        for i, value in enumerate(rows[1:], 1):
            total = f.b.or_(total, f.b.shl(f.b.zext(value, wide), fill(wide, i * 32 // len(rows))))
        return total

    def upper(self, first: ir.Value, second: ir.Value) -> ir.Value:
        """Words of the upper halves of two vectors of float32."""
        f, bits = self.f, vector(I32, LANES)
        low = f.b.lshr(f.b.bitcast(first, bits), fill(bits, 16))
        return f.b.or_(low, f.b.and_(f.b.bitcast(second, bits), fill(bits, UPPER)))

    def elements(self, batch: Sequence[Index], channel: Index, tap: Index, c: Index) -> ir.Value:
        """A row of the matrix."""
        f, b = self.f, self.k.ins[1]
        offset = f.add(f.mul(c, b.strides[-2]), channel)
        return f.load(self.matrix(batch), offset, b.dtype, LANES, self.mask(channel))


class HalfWeights(SecondFactor):
    """Constants of float16: [tile of output channels][tap][unit of K][block][words][lanes]."""

    @property
    def whole_units(self) -> Index:
        """All units: zeros are stored beyond K."""
        return self.k.units

    def begin(self, batch: Sequence[Index], block: Index, blocks: int) -> None:
        """Tiles of columns lie one behind the other."""
        self.base, self.blocks = self.f.address(self.pointer, self.f.mul(block, self.block_bytes), BYTE), blocks

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        return self.k.taps * self.k.units * TILE_BYTES

    def words(self, tap: Index, unit: Index, row: Index, block: int, whole: bool) -> list[ir.Value]:
        """Both halves of a row of words, split."""
        f, k = self.f, self.k
        number = f.add(f.mul(tap, k.units), unit)
        at = f.add(f.mul(f.add(f.mul(number, self.blocks), block), TILE_BYTES), f.mul(row, ROW_BYTES))
        place = f.address(self.base, at, BYTE)
        halves = [parts_of(f, f.load(place, n * LANES, F16, LANES), k.factors.weight_parts) for n in range(PAIR)]
        return [upper_halves(f, *pair) for pair in zip(*halves, strict=True)]

    def elements(self, batch: Sequence[Index], channel: Index, tap: Index, c: Index) -> ir.Value:
        """Halves of a row of words."""
        f, k = self.f, self.k
        block, unit = f.div(channel, LANES), k.factors.unit
        alone = f.b.icmp_signed(">=", f.value(block), f.value(k.blocks - k.blocks % CHANNEL_TILES))
        each = f.b.select(alone, I64(1), I64(CHANNEL_TILES))  # blocks of a stream
        within = f.rem(block, CHANNEL_TILES)
        number = f.add(f.mul(f.add(f.mul(tap, k.units), f.div(c, unit)), each), within)
        at = f.add(f.mul(f.sub(block, within), self.block_bytes), f.mul(number, TILE_BYTES))
        place = f.address(self.pointer, f.add(at, f.mul(f.div(f.rem(c, unit), PAIR), ROW_BYTES)), BYTE)
        words = f.b.load(place, align=1, typ=vector(I32, LANES))
        odd = f.b.icmp_signed("==", f.value(f.rem(c, PAIR)), I64(1))
        bits = f.b.select(odd, f.b.lshr(words, fill(words.type, 16)), words)
        half = f.b.bitcast(f.b.trunc(bits, vector(I16, LANES)), vector(HALF, LANES))
        return f.b.fpext(half, vector(FLOAT, LANES))


def second_factor(kernel: AmxScheme, f: FunctionEmitter) -> SecondFactor | None:
    """What reads a kernel's second factor; None where that lies in tiles."""
    if not kernel.packed[1]:
        return ComputedMatrix(kernel, f)
    return HalfWeights(kernel, f) if kernel.ins[1].dtype == F16 else None
