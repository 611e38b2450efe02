"""Reads the channels of an image at LANES points, whose pixels and weights a table has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, Index, fill, vector
from brickrt.ops.cpu.host_loops import LANES
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.sampling.channels_last import FLOAT32
from brickrt.ops.cpu.sampling.point_taps import FLOATS
from brickrt.ops.cpu.sampling.tap_table import TapTable

MOST_HELD_TAPS = 8  # of a point, whose places and weights registers hold


@dataclass(frozen=True)
class ReadPoints:
    """Neighbouring points of a row: of image `n`, the row's indices, the first point, and how many are left."""

    n: Index
    row: Sequence[Index]
    x: Index
    left: Index


@dataclass(frozen=True)
class ReadChannels:
    """A range of channels of the image, counted in pieces of `width` lanes: one where channels are planes, else what
    divides a block. They are written `shift` channels further on."""

    first: Index
    last: Index
    width: int
    shift: Index = 0


class PointReader:
    """Emits the reading of channels in planes, a vector for neighbouring points of which each collects its own pixels,
    or in blocks, a vector for the channels of a point."""

    def __init__(self, f: FunctionEmitter, image: Operand, out: Operand, table: TapTable) -> None:
        self.f, self.image, self.out, self.table = f, image, out, table

    def emit(self, points: ReadPoints, channels: ReadChannels) -> None:
        """What the table has points for."""
        (self._blocked if self.out.block > 1 else self._plain)(points, channels)

    def _plain(self, at: ReadPoints, channels: ReadChannels) -> None:
        """Channel by channel, each lane at its own pixels. Lane by lane: the machine's own gathers are many times
        slower on processors patched against their leaks."""
        f, table = self.f, self.table
        source, mask = f.pointer(1), f.tail_mask(at.left, LANES)
        with f.loop(channels.first, channels.last) as c:
            base = f.dot([at.n, c], self.image.strides[:2])
            total = f.variable(fill(FLOATS, 0.0))
            with f.loop(0, table.choices) as choice:
                offsets = [f.add(base, table.offset(choice, lane)) for lane in range(LANES)]
                pixels = f.collect(source, offsets, FLOAT32, LANES)
                f.change(total, f.fma(table.weights(choice), pixels, f.read(total)))
            place = f.dot([at.n, f.add(c, channels.shift), *at.row, at.x], self.out.strides)
            self._store(f.read(total), place, mask, at.left)

    def _store(self, value: ir.Value, place: Index, mask: ir.Value, left: Index) -> None:
        f, step = self.f, self.out.strides[-1]
        if step == 1:
            f.store(value, f.pointer(0), place, FLOAT32, LANES, mask)
            return
        with f.loop(0, f.minimum(left, LANES)) as lane:
            one = f.b.extract_element(value, f.value(lane))
            f.store(one, f.pointer(0), f.add(place, f.mul(lane, step)), FLOAT32)

    def _blocked(self, at: ReadPoints, channels: ReadChannels) -> None:
        """Point by point, and piece by piece of the channels."""
        f, width = self.f, channels.width
        source, target = f.pointer(1), f.pointer(0)
        with f.loop(0, f.minimum(at.left, LANES)) as lane:
            taps = self._held_taps(lane, width)
            with f.loop(channels.first, channels.last) as piece:
                channel = f.mul(piece, width)
                total = self._sum(source, self._place(self.image, at.n, channel), lane, taps, width)
                row = f.dot([*at.row, f.add(at.x, lane)], self.out.strides[2:])
                written = self._place(self.out, at.n, f.add(channel, channels.shift))
                f.store(total, target, f.add(written, row), FLOAT32, width)

    def _place(self, operand: Operand, n: Index, channel: Index) -> Index:
        """Where a channel of an image in blocks begins."""
        f, block = self.f, operand.block
        return f.add(f.dot([n, f.div(channel, block)], operand.strides[:2]), f.rem(channel, block))

    def _held_taps(self, lane: Index, width: int) -> list[tuple[ir.Value, ir.Value]]:
        """Where the pixels of a point are, and their weights in all lanes; none where these are too many."""
        f, table = self.f, self.table
        choices = range(table.choices if table.choices <= MOST_HELD_TAPS else 0)
        return [(table.offset(k, lane), f.splat(table.weight(k, lane), width)) for k in choices]

    def _sum(
        self, source: ir.Value, base: Index, lane: Index, taps: Sequence[tuple[ir.Value, ir.Value]], width: int
    ) -> ir.Value:
        """So many channels at a point."""
        f, table, nothing = self.f, self.table, fill(vector(FLOAT, width), 0.0)
        if taps:
            total = nothing
            for offset, weight in taps:
                total = f.fma(weight, f.load(source, f.add(base, offset), FLOAT32, width), total)
            return total
        sums = f.variable(nothing)
        with f.loop(0, table.choices) as choice:
            pixel = f.load(source, f.add(base, table.offset(choice, lane)), FLOAT32, width)
            f.change(sums, f.fma(f.splat(table.weight(choice, lane), width), pixel, f.read(sums)))
        return f.read(sums)
