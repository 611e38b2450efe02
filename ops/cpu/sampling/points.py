"""Images read at the points of a grid that is data (ONNX's GridSample), for the host to call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from brickrt.ops.cpu.emit.item_loop import OWN, ItemLoop
from brickrt.ops.cpu.emit.llvm_types import FLOAT, Index, fill
from brickrt.ops.cpu.moves.square_tiles import turn
from brickrt.ops.cpu.sampling.channels_last import FLOAT32, LANES
from brickrt.ops.cpu.sampling.point_taps import FLOATS, STEPS, PointTaps
from brickrt.ops.cpu.sampling.tap_table import TapTable, adjacent_coordinates

BLOCK = 1 << 8  # points of an item, at most
AT_ONCE = 4  # vectors of channels that are summed together
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
    emitter = _Points(f, taps, TapTable(f, len(STEPS[mode]) ** axes))
    with f.items() as item:
        image = f.b.sdiv(item, blocks)
        first = f.mul(f.sub(item, f.mul(image, blocks)), BLOCK)
        end = f.minimum(f.add(first, BLOCK), points)
        with f.loop(first, end, LANES) as point:
            emitter.note(f.add(f.mul(image, points), point), f.sub(end, point))
            mask = f.tail_mask(f.sub(end, point), LANES)
            (emitter.channels_last if last else emitter.planes)(image, point, mask)
    f.finish()


@dataclass(frozen=True)
class _Points:
    """Emits what is done for LANES points."""

    f: ItemLoop
    axes: Sequence[PointTaps]
    table: TapTable

    def note(self, entry: Index, left: Index) -> None:
        """Fills the table for points from an entry of the grid on, of which so many are left."""
        f, count = self.f, len(self.axes)
        found = adjacent_coordinates(f, f.pointed(GRID), f.mul(entry, count), left, count)
        chosen = [axis.taps(at) for axis, at in zip(self.axes, reversed(found), strict=True)]
        self.table.fill(chosen, [f.word(FIRST_AXIS + 2 * axis + 1) for axis in range(count)])

    def planes(self, image: Index, point: Index, mask: ir.Value) -> None:
        """Channel by channel, each lane at its own pixels. Lane by lane: the machine's own gathers are many times
        slower on processors patched against their leaks."""
        f = self.f
        with f.loop(0, f.word(CHANNELS)) as c:
            base = f.add(f.mul(image, f.word(IMAGE_STEP)), f.mul(c, f.word(CHANNEL_STEP)))
            total = f.variable(fill(FLOATS, 0.0))
            with f.loop(0, self.table.choices) as choice:
                offsets = [f.add(base, self.table.offset(choice, lane)) for lane in range(LANES)]
                pixels = f.collect(f.pointed(PIXELS), offsets, FLOAT32, LANES)
                f.change(total, f.fma(self.table.weights(choice), pixels, f.read(total)))
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
            at = f.add(base, self.table.offset(choice, lane))
            weight = f.splat(self.table.weight(choice, lane), LANES)
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

    def _out(self, image: Index, channel: Index, point: Index) -> Index:
        f = self.f
        return f.add(f.mul(f.add(f.mul(image, f.word(CHANNELS)), channel), f.word(POINTS)), point)
