"""The bins of regions of images: means, or maxima, of samples that lie between pixels (ONNX's RoiAlign)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.item_loop import ItemLoop
from brickrt.ops.cpu.emit.llvm_types import DOUBLE, FLOAT, I64, Index, fill, vector
from brickrt.ops.cpu.emit.variables import Variable
from brickrt.ops.cpu.host_loops import (
    LANES,
    REGION_AXIS_WORDS,
    REGION_WORDS,
    SENTINELS,
    VECTORS_AT_ONCE,
    with_axes,
)
from brickrt.ops.cpu.moves.square_tiles import turn
from brickrt.ops.cpu.sampling.channels_last import FLOAT32

INT64 = np.dtype(np.int64)


@dataclass(frozen=True)
class _Axis:
    """The taps of one axis in the worker's scratch: per bin as many as `counts` says, from entry SENTINELS on."""

    bins: ir.Value
    extent: ir.Value
    step: ir.Value
    offsets: ir.Value
    weights: ir.Value
    counts: ir.Value


def emit_regions(module: ir.Module, name: str, maxima: bool) -> None:
    """An item is a region: its taps along each axis are noted, then all channels are summed bin by bin, or the largest
    weighted pixel is looked for. What lies outside of the image counts as 0, and so does what is no number.

    The words: `pixels` is where pixel 0, 0 of the first image would lie, channels last; `out` float32 [regions,
    channels, bins0, bins1]; `starts` and `sizes` (of bins) float32 [regions, 2] in pixels, `samples` int64 [regions,
    2], `images` int64 [regions]. Of each axis `extent` is the image's, `step` the elements from a pixel to the next.
    In the worker's scratch, bytes: `offsets`, `weights` and `counts` of the taps of each axis, of which a bin has room
    for `taps` with the sentinels, and the `tile` of results."""
    f = ItemLoop(module, name, with_axes(REGION_WORDS, REGION_AXIS_WORDS, 2))
    axes = [_Axis(*(_axis_word(f, name, axis) for name in REGION_AXIS_WORDS)) for axis in (0, 1)]
    emitter = _Regions(f, axes, maxima)
    with f.items() as region:
        counts = [emitter.note(axis, region) for axis in (0, 1)]
        emitter.all_channels(region, counts)
    f.finish()


def _axis_word(f: ItemLoop, name: str, axis: int) -> ir.Value:
    read = f.scratch if name in REGION_AXIS_WORDS[3:] else f.word
    return read(f"{name}{axis}")


class _Regions:
    """Emits what is done for one region."""

    def __init__(self, f: ItemLoop, axes: Sequence[_Axis], maxima: bool) -> None:
        self.f, self.axes, self.maxima = f, axes, maxima
        self.taps, self.channels = f.word("taps"), f.word("channels")
        self.depth: Index = f.mul(f.div(f.add(self.channels, LANES - 1), LANES), LANES)
        self.tile = f.scratch("tile")

    # ---- taps

    def note(self, axis: int, region: ir.Value) -> ir.Value:
        """Notes the taps of all bins along an axis; gives the number of samples a bin."""
        f, entry = self.f, self.f.add(self.f.mul(region, 2), axis)
        start, size = (f.load(f.pointed(name), entry, FLOAT32) for name in ("starts", "sizes"))
        samples = f.load(f.pointed("samples"), entry, INT64)
        with f.loop(0, self.axes[axis].bins) as bin:
            number = f.b.sitofp(f.value(bin), FLOAT)
            self._note_bin(self.axes[axis], bin, f.b.fadd(start, f.b.fmul(number, size)), size, samples)
        return samples

    def _note_bin(self, axis: _Axis, bin: Index, start: ir.Value, size: ir.Value, samples: ir.Value) -> None:
        f, first = self.f, self.f.mul(bin, self.taps)
        for k in range(SENTINELS):
            f.store(I64(-1), axis.offsets, f.add(first, k), INT64)
        end = f.variable(f.value(f.add(first, SENTINELS)))
        each = f.b.sitofp(samples, FLOAT)
        with f.loop(0, samples) as number:
            part = f.b.fadd(f.b.sitofp(f.value(number), FLOAT), FLOAT(0.5))
            at = f.b.fadd(start, f.b.fdiv(f.b.fmul(part, size), each))
            below = f.b.fcmp_ordered("<=", at, f.b.sitofp(axis.extent, FLOAT))
            with f.when(f.b.and_(f.b.fcmp_ordered(">=", at, FLOAT(-1.0)), below)):
                self._note_sample(axis, end, at)
        f.store(f.read(end), axis.counts, bin, INT64)

    def _note_sample(self, axis: _Axis, end: Variable, at: ir.Value) -> None:
        """Two taps: where the last sample lay between the same pixels, or one of them, their weights grow."""
        f, last = self.f, self.f.sub(axis.extent, 1)
        at = f.b.select(f.b.fcmp_ordered(">", at, FLOAT(0.0)), at, FLOAT(0.0))
        low = f.minimum(f.b.fptosi(at, I64), last)
        high = f.minimum(f.add(low, 1), last)
        rest = f.b.fsub(at, f.b.sitofp(f.value(low), FLOAT))
        rest = f.b.select(f.b.icmp_signed("<", f.value(low), f.value(last)), rest, FLOAT(0.0))
        weights, here = (f.b.fsub(FLOAT(1.0), rest), rest), f.read(end)
        if self.maxima:
            self._push(axis, end, (low, high), weights)
            return
        offset = f.value(f.mul(low, axis.step))
        same = [f.b.icmp_signed("==", f.load(axis.offsets, f.sub(here, k), INT64), offset) for k in (2, 1)]
        known = f.b.select(same[0], I64(2), f.b.select(same[1], I64(1), I64(0)))
        for tap in (0, 1):  # how many of the last taps these two are, from which entry on
            entry = f.add(f.sub(here, known), tap)
            old = f.load(axis.weights, entry, FLOAT32)
            there = f.b.icmp_signed("<", I64(tap), known)
            total = f.b.fadd(weights[tap], f.b.select(there, old, FLOAT(0.0)))
            f.store(total, axis.weights, entry, FLOAT32)
            f.store(f.value(f.mul((low, high)[tap], axis.step)), axis.offsets, entry, INT64)
        f.change(end, f.value(f.add(f.sub(here, known), 2)))

    def _push(self, axis: _Axis, end: Variable, pixels: Sequence[Index], weights: Sequence[ir.Value]) -> None:
        f, here = self.f, self.f.read(end)
        for tap in (0, 1):
            f.store(weights[tap], axis.weights, f.add(here, tap), FLOAT32)
            f.store(f.value(f.mul(pixels[tap], axis.step)), axis.offsets, f.add(here, tap), INT64)
        f.change(end, f.value(f.add(here, 2)))

    # ---- channels

    def all_channels(self, region: ir.Value, samples: Sequence[ir.Value]) -> None:
        """Several vectors of channels at once, then one by one."""
        f, wide = self.f, VECTORS_AT_ONCE * LANES
        images = f.load(f.pointed("images"), region, INT64)
        image = f.mul(images, f.word("image_step"))
        done = f.sub(self.depth, f.rem(self.depth, wide))
        with f.loop(0, done, wide) as c:
            self._chunk(region, f.add(image, c), c, samples, VECTORS_AT_ONCE)
        with f.loop(done, self.depth, LANES) as c:
            self._chunk(region, f.add(image, c), c, samples, 1)

    def _chunk(self, region: ir.Value, first: Index, c: Index, samples: Sequence[ir.Value], count: int) -> None:
        f, (down, across) = self.f, self.axes
        width = VECTORS_AT_ONCE * LANES
        with f.loop(0, down.bins) as y, f.loop(0, across.bins) as x:
            results = self._bin(first, y, x, samples, count)
            at = f.mul(f.add(f.mul(y, across.bins), x), width)
            for k, value in enumerate(results):
                f.store(value, self.tile, f.add(at, k * LANES), FLOAT32, LANES)
        bins = f.mul(down.bins, across.bins)
        with f.loop(0, count * LANES, LANES) as column:
            self._write(region, f.add(c, column), column, bins, width)

    def _bin(self, first: Index, y: Index, x: Index, samples: Sequence[ir.Value], count: int) -> list[ir.Value]:
        """`count` vectors of channels of one bin."""
        f, kind = self.f, vector(FLOAT, LANES)
        spans = [self._span(axis, at) for axis, at in zip(self.axes, (y, x), strict=True)]
        start = self._least(spans, samples) if self.maxima else fill(kind, 0.0)
        totals = [f.variable(start) for _ in range(count)]
        with f.loop(*spans[0]) as v:
            row, weight = self._tap(self.axes[0], v)
            of_row = totals if self.maxima else [f.variable(fill(kind, 0.0)) for _ in range(count)]
            with f.loop(*spans[1]) as h:
                column, share = self._tap(self.axes[1], h)
                share = f.splat(f.b.fmul(weight, share) if self.maxima else share, LANES)
                for k, total in enumerate(of_row):
                    at = f.add(first, row, column, k * LANES)
                    pixel = f.load(f.pointed("pixels"), at, FLOAT32, LANES)
                    f.change(total, self._joined(share, pixel, f.read(total)))
            if not self.maxima:
                weight = f.splat(weight, LANES)
                for total, part in zip(totals, of_row, strict=True):
                    f.change(total, f.fma(weight, f.read(part), f.read(total)))
        values = [f.read(total) for total in totals]
        return values if self.maxima else [f.b.fmul(value, self._share(samples)) for value in values]

    def _joined(self, share: ir.Value, pixel: ir.Value, total: ir.Value) -> ir.Value:
        f = self.f
        return f.math("maximum", total, f.b.fmul(share, pixel)) if self.maxima else f.fma(share, pixel, total)

    def _span(self, axis: _Axis, bin: Index) -> tuple[Index, Index]:
        """The entries of a bin's taps."""
        f = self.f
        return f.add(f.mul(bin, self.taps), SENTINELS), f.load(axis.counts, bin, INT64)

    def _tap(self, axis: _Axis, entry: Index) -> tuple[ir.Value, ir.Value]:
        return self.f.load(axis.offsets, entry, INT64), self.f.load(axis.weights, entry, FLOAT32)

    def _share(self, samples: Sequence[ir.Value]) -> ir.Value:
        """One over the number of samples, in all lanes."""
        f = self.f
        both = f.b.fmul(*(f.b.sitofp(f.maximum(n, 1), DOUBLE) for n in samples))
        return f.splat(f.b.fptrunc(f.b.fdiv(DOUBLE(1.0), both), FLOAT), LANES)

    def _least(self, spans: Sequence[tuple[Index, Index]], samples: Sequence[ir.Value]) -> ir.Value:
        """What a maximum begins with: 0 where some sample lies outside, or there is none."""
        f, all_seen = self.f, None
        for (lo, hi), n in zip(spans, samples, strict=True):
            some = f.b.icmp_signed(">", n, I64(0))
            seen = f.b.and_(some, f.b.icmp_signed("==", f.value(f.sub(hi, lo)), f.value(f.mul(n, 2))))
            all_seen = seen if all_seen is None else f.b.and_(all_seen, seen)
        return f.splat(f.b.select(all_seen, FLOAT(-np.inf), FLOAT(0.0)), LANES)

    def _write(self, region: ir.Value, c: Index, column: Index, bins: Index, width: int) -> None:
        """Turns the results of a vector of channels, and writes those of channels that there are."""
        f = self.f
        out = f.pointed("out")
        with f.loop(0, bins, LANES) as b:
            lines = [f.load(self.tile, f.add(f.mul(f.add(b, k), width), column), FLOAT32, LANES) for k in range(LANES)]
            turned, mask = turn(f, lines), f.tail_mask(f.sub(bins, b), LANES)
            for k, line in enumerate(turned):
                channel = f.add(c, k)
                with f.when(f.b.icmp_signed("<", f.value(channel), self.channels)):
                    at = f.add(f.mul(f.add(f.mul(region, self.channels), channel), bins), b)
                    f.store(line, out, at, FLOAT32, LANES, mask)
