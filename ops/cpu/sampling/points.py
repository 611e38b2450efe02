"""Images read at the points of a grid that is data (ONNX's GridSample), for the host to call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.item_loop import OWN, ItemLoop
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I32, I64, Index, fill, vector
from brickrt.ops.cpu.moves.square_tiles import turn
from brickrt.ops.cpu.sampling.channels_last import FLOAT32, LANES
from brickrt.ops.cpu.sampling.point_taps import FLOATS, STEPS, PointTaps

BLOCK = 1 << 8  # points of an item, at most
AT_ONCE = 4  # vectors of channels that are summed together
INT32 = np.dtype(np.int32)
OUT, PIXELS, GRID, POINTS, BLOCKS, CHANNELS, IMAGE_STEP, CHANNEL_STEP, FIRST_AXIS = range(OWN, OWN + 9)
"""The function's words: OUT is float32 [images, channels, points], GRID [images, POINTS, axes] with the innermost axis
first, each image in BLOCKS of them; PIXELS are the images', whose steps are in elements. From FIRST_AXIS on, outermost
first, the extent of each axis and the elements from a pixel to the next."""


def emit_points(
    module: ir.Module, name: str, axes: int, mode: str, padding: str, align: bool | None, last: bool
) -> None:
    """An item is a block of an image's points. With `last` the pixels have their channels innermost, in whole vectors;
    else each channel of an image is by itself."""
    f = ItemLoop(module, name)
    points, blocks = f.word(POINTS), f.word(BLOCKS)
    extents = [f.word(FIRST_AXIS + 2 * axis) for axis in range(axes)]
    taps = [PointTaps(f, mode, padding, align, f.b.sitofp(extent, FLOAT)) for extent in extents]
    emitter = _Points(f, taps, _Table(f, len(STEPS[mode]) ** axes))
    with f.items() as item:
        image = f.b.sdiv(item, blocks)
        first = f.mul(f.sub(item, f.mul(image, blocks)), BLOCK)
        end = f.minimum(f.add(first, BLOCK), points)
        with f.loop(first, end, LANES) as point:
            emitter.note(f.add(f.mul(image, points), point), f.sub(end, point))
            mask = f.tail_mask(f.sub(end, point), LANES)
            (emitter.channels_last if last else emitter.planes)(image, point, mask)
    f.finish()


class _Table:
    """What LANES points read: per choice of a tap of each axis, offsets and weights of all points side by side."""

    def __init__(self, f: ItemLoop, choices: int) -> None:
        self.choices = choices
        self.offsets, self.weights = (f.local(kind, count=choices * LANES) for kind in (I32, FLOAT))


@dataclass(frozen=True)
class _Points:
    """Emits what is done for LANES points."""

    f: ItemLoop
    axes: Sequence[PointTaps]
    table: _Table

    def note(self, entry: Index, left: Index) -> None:
        """Fills the table for points from an entry of the grid on, of which so many are left."""
        f = self.f
        chosen = [axis.taps(at) for axis, at in zip(self.axes, reversed(self._coordinates(entry, left)), strict=True)]
        steps = [f.word(FIRST_AXIS + 2 * axis + 1) for axis in range(len(self.axes))]
        wide = [f.splat(f.b.trunc(step, I32), LANES) for step in steps]
        for choice, taps in enumerate(product(*chosen)):
            offset, weight = fill(vector(I32, LANES), 0), None
            for (pixel, share), step in zip(taps, wide, strict=True):
                offset = f.b.add(offset, f.b.mul(pixel, step))
                weight = share if weight is None else f.b.fmul(weight, share)
            f.store(offset, self.table.offsets, choice * LANES, INT32, LANES)
            f.store(weight, self.table.weights, choice * LANES, FLOAT32, LANES)

    def _coordinates(self, entry: Index, left: Index) -> list[ir.Value]:
        """Each axis' coordinates, as the grid has them: innermost axis first."""
        f, count = self.f, len(self.axes)
        first, floats = f.mul(entry, count), f.mul(left, count)
        lines = []
        for k in range(count):
            mask = f.tail_mask(f.sub(floats, k * LANES), LANES)
            lines.append(f.load(f.pointed(GRID), f.add(first, k * LANES), FLOAT32, LANES, mask))
        return [self._every(lines, axis) for axis in range(count)]

    def _every(self, lines: Sequence[ir.Value], first: int) -> ir.Value:
        """Elements first, first + n, … of n vectors in a row."""
        total, n = lines[0], len(lines)
        for k in range(n):
            here = [first + n * lane - k * LANES for lane in range(LANES)]  # where in line k; before it they are taken
            kept = [lane if at < 0 else LANES + at if at < LANES else 0 for lane, at in enumerate(here)]
            total = self.f.shuffle(total, lines[k], kept)
        return total

    def planes(self, image: Index, point: Index, mask: ir.Value) -> None:
        """Channel by channel, each lane at its own pixels. Lane by lane: the machine's own gathers are many times
        slower on processors patched against their leaks."""
        f = self.f
        with f.loop(0, f.word(CHANNELS)) as c:
            base = f.add(f.mul(image, f.word(IMAGE_STEP)), f.mul(c, f.word(CHANNEL_STEP)))
            total = f.variable(fill(FLOATS, 0.0))
            with f.loop(0, self.table.choices) as choice:
                entry = f.mul(choice, LANES)
                offsets = [f.add(base, self._offset(f.add(entry, lane))) for lane in range(LANES)]
                pixels = f.collect(f.pointed(PIXELS), offsets, FLOAT32, LANES)
                weight = f.load(self.table.weights, entry, FLOAT32, LANES)
                f.change(total, f.fma(weight, pixels, f.read(total)))
            f.store(f.read(total), f.pointed(OUT), self._out(image, c, point), FLOAT32, LANES, mask)

    def channels_last(self, image: Index, point: Index, mask: ir.Value) -> None:
        """Point by point, all channels of a pixel at once; then the results are turned."""
        f, wide = self.f, AT_ONCE * LANES
        depth = f.mul(f.div(f.add(f.word(CHANNELS), LANES - 1), LANES), LANES)
        done = f.sub(depth, f.rem(depth, wide))
        tile = f.local(FLOAT, count=LANES * wide)
        for lo, hi, count in ((0, done, AT_ONCE), (done, depth, 1)):
            with f.loop(lo, hi, count * LANES) as c:
                with f.loop(0, LANES) as lane:
                    base = f.add(f.mul(image, f.word(IMAGE_STEP)), c)
                    for k, value in enumerate(self._pixel_sums(base, lane, count)):
                        f.store(value, tile, f.add(f.mul(lane, wide), k * LANES), FLOAT32, LANES)
                with f.loop(0, count * LANES, LANES) as column:
                    self._write(tile, column, image, f.add(c, column), point, mask)

    def _pixel_sums(self, base: Index, lane: Index, count: int) -> list[ir.Value]:
        """`count` vectors of channels at one point."""
        f = self.f
        totals = [f.variable(fill(FLOATS, 0.0)) for _ in range(count)]
        with f.loop(0, self.table.choices) as choice:
            entry = f.add(f.mul(choice, LANES), lane)
            at, weight = f.add(base, self._offset(entry)), f.splat(f.load(self.table.weights, entry, FLOAT32), LANES)
            for k, total in enumerate(totals):
                pixel = f.load(f.pointed(PIXELS), f.add(at, k * LANES), FLOAT32, LANES)
                f.change(total, f.fma(weight, pixel, f.read(total)))
        return [f.read(total) for total in totals]

    def _write(self, tile: ir.Value, column: Index, image: Index, c: Index, point: Index, mask: ir.Value) -> None:
        f = self.f
        lines = [f.load(tile, f.add(lane * AT_ONCE * LANES, column), FLOAT32, LANES) for lane in range(LANES)]
        for k, line in enumerate(turn(f, lines)):
            channel = f.add(c, k)
            with f.when(f.b.icmp_signed("<", f.value(channel), f.word(CHANNELS))):
                f.store(line, f.pointed(OUT), self._out(image, channel, point), FLOAT32, LANES, mask)

    def _offset(self, entry: Index) -> ir.Value:
        return self.f.b.sext(self.f.load(self.table.offsets, entry, INT32), I64)

    def _out(self, image: Index, channel: Index, point: Index) -> Index:
        f = self.f
        return f.add(f.mul(f.add(f.mul(image, f.word(CHANNELS)), channel), f.word(POINTS)), point)
