"""Sums of parts that are not finite, or so small that parts were lost, are computed again, from whole elements (of
weights that are kept in parts, from all of these).

Parts of infinity are infinity and NaN, and any number times these is not finite either: so no output that reads one
passes for a number. Tile registers count subnormal numbers as zero; that is lost in sums of LEAST_EXACT_MAGNITUDE and
less, and in those of zero in a vector that has such sums. A vector is judged by its own sums, so bits do not depend on
what else is computed. A box knows of a computed second factor its own columns alone, so there each lane is judged by
itself, and sums of zero stay: they have lost products of parts below 2**-126 each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.amx.factors import UPPER
from brickrt.ops.cpu.amx.gather import BYTE
from brickrt.ops.cpu.amx.scheme import CHANNEL_TILES, OUTPUTS_AT_A_TIME, AmxScheme
from brickrt.ops.cpu.amx.second_factors import second_factor
from brickrt.ops.cpu.amx.sizes import LANES, ROW_BYTES, TILE_BYTES
from brickrt.ops.cpu.amx.views import DIMS
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I1, I32, I64, PTR, Index, fill, vector, zeros
from brickrt.ops.cpu.emit.magnitudes import EXPONENT_OF_ONE, POWER, greater, kept_lanes, magnitudes

LEAST_EXACT_MAGNITUDE = (EXPONENT_OF_ONE - 90) << 23  # its bits: it has not lost anything
INFINITE = (EXPONENT_OF_ONE + 128) * POWER
F32, WORDS = np.dtype(np.float32), np.dtype(np.int32)


class Again:
    """Emits the look at sums, and apart from it the code that computes some anew."""

    def __init__(self, kernel: AmxScheme, f: FunctionEmitter) -> None:
        self.k, self.f = kernel, f
        self.code: ir.Function | None = None

    def mend(
        self,
        sums: ir.Value,
        count: Index,
        within: Sequence[Index],
        batch: Sequence[Index],
        channel: Index,
        pixel: Sequence[Index],
    ) -> None:
        """Computes again the `sums` that must be, of `count` pixels side by side: [pixel][block][lanes], in blocks of
        channels from `channel` on, of which those are looked at that are `within` the box."""
        f, bits = self.f, vector(I32, LANES)
        least, most = f.variable(fill(bits, -1)), f.variable(zeros(bits))

        def look(pixel: Index, block: int) -> None:
            size = magnitudes(f, f.load(sums_at(self.k, f, sums, pixel, block), 0, F32, LANES), kept_lanes(LANES))
            f.change(least, f.math("umin", f.read(least), less_one(f, size)))
            f.change(most, greater(f, f.read(most), size))

        whole = f.mul(f.div(count, OUTPUTS_AT_A_TIME), OUTPUTS_AT_A_TIME)
        for j, inside in enumerate(within):
            with f.when(inside):
                with f.loop(0, whole, OUTPUTS_AT_A_TIME) as at:
                    for t in range(OUTPUTS_AT_A_TIME):
                        look(f.add(at, t), j)
                with f.loop(whole, count) as at:
                    look(at, j)
        with f.when(some(f, suspects(f, f.read(least), f.read(most)))):
            self.compute(f.b.ptrtoint(sums, I64), count, len(within), channel, *batch, *pixel)

    def compute(self, *place: Index) -> None:
        """Looks at every vector of sums, and stores those that must be computed again: an address, how many pixels and
        blocks of channels, a channel, and the indices of image and pixel."""
        f = self.f
        if self.code is not None:
            f.b.call(self.code, [*f.fn.args[:2], *(f.value(at) for at in place)])
            return
        with f.apart("again", *place) as (apart, (to, count, blocks, channel, *index)):
            sums, alone = apart.b.inttoptr(to, PTR), _Sums(self.k, apart)
            with apart.loop(0, count) as t, apart.loop(0, blocks) as j:
                at = apart.add(channel, apart.mul(j, LANES))
                with apart.when(self.k.view.within(apart, at)):
                    pixel = [*index[-DIMS:-1], apart.add(index[-1], t)]
                    self.mend_vector(alone, sums_at(self.k, apart, sums, t, j), at, index[:-DIMS], pixel)
            self.code = apart.fn

    def mend_vector(
        self, alone: _Sums, place: ir.Value, channel: Index, batch: Sequence[Index], pixel: Sequence[Index]
    ) -> None:
        """Replaces the lanes of a vector that must be computed again."""
        f = alone.f
        value = f.load(place, 0, F32, LANES)
        size = magnitudes(f, value, kept_lanes(LANES))
        suspect = suspects(f, less_one(f, size), size)
        with f.when(some(f, suspect)):
            anew = alone.emit(channel, batch, pixel)
            if self.k.packed[1]:
                suspect = f.b.or_(suspect, f.b.icmp_signed("==", size, zeros(size.type)))
            f.store(f.b.select(suspect, anew, value), place, 0, F32, LANES)


def sums_at(kernel: AmxScheme, f: FunctionEmitter, first: ir.Value, pixel: Index, block: Index) -> ir.Value:
    """Where the sums of a pixel and a block of channels lie, of those that begin at `first`."""
    return f.address(first, f.add(f.mul(pixel, kernel.kept_bytes), f.mul(block, ROW_BYTES)), BYTE)


def less_one(f: FunctionEmitter, size: ir.Value) -> ir.Value:
    """Magnitudes but one, unsigned: that of zero becomes the greatest."""
    return f.b.sub(size, fill(size.type, 1))


def suspects(f: FunctionEmitter, less: ir.Value, size: ir.Value) -> ir.Value:
    """The lanes whose magnitude, or that but one, belongs to sums that have lost something."""
    tiny = f.b.icmp_unsigned("<", less, fill(less.type, LEAST_EXACT_MAGNITUDE))
    return f.b.or_(tiny, f.b.icmp_signed(">=", size, fill(size.type, INFINITE)))


def some(f: FunctionEmitter, lanes: ir.Value) -> ir.Value:
    """Whether any lane is marked."""
    word = ir.IntType(LANES)
    return f.b.icmp_unsigned("!=", f.b.bitcast(lanes, word), word(0))


class _Sums:
    """Emits the sums of a pixel for a vector of channels."""

    def __init__(self, kernel: AmxScheme, f: FunctionEmitter) -> None:
        self.k, self.f = kernel, f
        self.x, self.w, self.second = f.pointer(1), f.pointer(2), second_factor(kernel, f)
        self.bias = f.pointer(3) if kernel.op.bias else None
        self.scales = f.pointer(kernel.op.main) if getattr(kernel.op, "channel_scaled", False) else None

    def emit(self, channel: Index, batch: Sequence[Index], pixel: Sequence[Index]) -> ir.Value:
        """The sums of whole elements."""
        f, view = self.f, self.k.view
        first = zeros(vector(FLOAT, LANES)) if self.bias is None else f.load(self.bias, channel, F32, LANES)
        total = f.variable(first)
        with self.taps(pixel) as (tap, place):
            source = f.add(view.source(f, batch), f.dot(place, view.steps))
            with f.loop(0, view.depth) as c:
                first, inner = f.mul(f.div(c, LANES), LANES), f.rem(c, LANES)
                at = f.add(source, view.channel(f, first), inner)
                element = f.load(self.x, at, F32)
                if self.scales is not None:
                    element = f.b.fmul(element, self.factor(batch, first, inner))
                if self.second is not None:
                    weight = self.second.elements(batch, channel, tap, c)
                else:
                    weight = self.weight(f.div(channel, LANES), tap, c)
                f.change(total, f.fma(f.splat(element, LANES), weight, f.read(total)))
        return f.read(total)

    def factor(self, batch: Sequence[Index], first: Index, inner: Index) -> ir.Value:
        """The factor of a channel of the input."""
        f, operand = self.f, self.k.ins[self.k.op.main - 1]
        assert self.scales is not None
        image = f.mul(batch[0], operand.strides[0]) if operand.shape[0] > 1 else 0
        at = f.add(image, f.mul(f.div(first, operand.block), operand.strides[1]), inner)
        return f.load(self.scales, at, operand.dtype)

    @contextmanager
    def taps(self, pixel: Sequence[Index]) -> Iterator[tuple[Index, list[Index]]]:
        """Loop over the taps that fall on the input: the number of each, and what it reads."""
        f, view = self.f, self.k.view
        with f.loops([(0, extent) for extent in view.kernel]) as at:
            window = zip(pixel, view.strides, at, view.dilations, view.pads, strict=True)
            place = [f.sub(f.add(f.mul(p, s), f.mul(t, d)), pad) for p, s, t, d, pad in window]
            inside = I1(1)
            for one, extent in zip(place, view.extents, strict=True):
                inside = f.b.and_(inside, f.b.icmp_unsigned("<", f.value(one), f.value(extent)))
            with f.when(inside):
                yield f.add(f.mul(f.add(f.mul(at[0], view.kernel[1]), at[1]), view.kernel[2]), at[2]), place

    def weight(self, block: Index, tap: Index, c: Index) -> ir.Value:
        """The weights of an element of K at a tap, put together from their parts."""
        f, k = self.f, self.k
        alone = f.b.icmp_signed(">=", f.value(block), f.value(k.blocks - k.blocks % CHANNEL_TILES))
        each = f.b.select(alone, f.value(1), f.value(CHANNEL_TILES))  # blocks of a stream
        stream = f.sub(block, f.rem(block, CHANNEL_TILES))
        step = f.add(f.mul(tap, k.units), f.div(c, k.factors.unit))
        first = f.add(f.mul(stream, k.block_bytes), f.mul(step, f.b.mul(each, f.value(k.step_bytes))))
        tile = f.mul(f.rem(block, CHANNEL_TILES), TILE_BYTES)
        row = f.add(tile, f.mul(f.div(f.rem(c, k.factors.unit), 2), ROW_BYTES))
        total = zeros(vector(FLOAT, LANES))
        odd = f.b.icmp_signed("==", f.value(f.rem(c, 2)), f.value(1))
        for part in range(k.factors.weight_parts):
            at = f.address(self.w, f.add(first, row, f.mul(part * TILE_BYTES, each)), BYTE)
            words = f.load(at, 0, WORDS, LANES)
            upper = f.b.and_(words, fill(words.type, UPPER))
            bits = f.b.select(odd, upper, f.b.shl(words, fill(words.type, 16)))
            total = f.b.fadd(total, f.b.bitcast(bits, total.type))
        return total
