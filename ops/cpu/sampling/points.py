"""Images read at the points of a grid that is data (ONNX's GridSample), for the host to call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from brickrt.ops.cpu.emit.item_loop import ItemLoop
from brickrt.ops.cpu.emit.llvm_types import FLOAT, Index, fill
from brickrt.ops.cpu.host_loops import (
    LANES,
    POINT_AXIS_WORDS,
    POINT_BLOCK,
    POINT_WORDS,
    VECTORS_AT_ONCE,
    with_axes,
)
from brickrt.ops.cpu.moves.square_tiles import turn
from brickrt.ops.cpu.sampling.channels_last import FLOAT32
from brickrt.ops.cpu.sampling.point_taps import FLOATS, STEPS, PointTaps
from brickrt.ops.cpu.sampling.tap_table import TapTable, adjacent_coordinates


def emit_points(
    module: ir.Module, name: str, axes: int, mode: str, padding: str, align: bool | None, last: bool
) -> None:
    """An item is a block of an image's points. With `last` the pixels have their channels innermost, in whole vectors;
    else each channel of an image is by itself.

    The words: `out` is float32 [images, `channels`, points], `grid` [images, `points`, axes] with the innermost axis
    first, each image in `blocks` of them; `pixels` are the images', whose steps are in elements. Of each axis, the
    outermost first, `extent` is the image's and `step` the elements from a pixel to the next."""
    f = ItemLoop(module, name, with_axes(POINT_WORDS, POINT_AXIS_WORDS, axes))
    points, blocks = f.word("points"), f.word("blocks")
    extents = [f.word(f"extent{axis}") for axis in range(axes)]
    taps = [PointTaps(f, mode, padding, align, f.b.sitofp(extent, FLOAT)) for extent in extents]
    emitter = _Points(f, taps, TapTable(f, len(STEPS[mode]) ** axes))
    with f.items() as item:
        image = f.b.sdiv(item, blocks)
        first = f.mul(f.sub(item, f.mul(image, blocks)), POINT_BLOCK)
        end = f.minimum(f.add(first, POINT_BLOCK), points)
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
        found = adjacent_coordinates(f, f.pointed("grid"), f.mul(entry, count), left, count)
        chosen = [axis.taps(at) for axis, at in zip(self.axes, reversed(found), strict=True)]
        self.table.fill(chosen, [f.word(f"step{axis}") for axis in range(count)])

    def planes(self, image: Index, point: Index, mask: ir.Value) -> None:
        """Channel by channel, each lane at its own pixels. Lane by lane: the machine's own gathers are many times
        slower on processors patched against their leaks."""
        f = self.f
        with f.loop(0, f.word("channels")) as c:
            base = f.add(f.mul(image, f.word("image_step")), f.mul(c, f.word("channel_step")))
            total = f.variable(fill(FLOATS, 0.0))
            with f.loop(0, self.table.choices) as choice:
                offsets = [f.add(base, self.table.offset(choice, lane)) for lane in range(LANES)]
                pixels = f.collect(f.pointed("pixels"), offsets, FLOAT32, LANES)
                f.change(total, f.fma(self.table.weights(choice), pixels, f.read(total)))
            f.store(f.read(total), f.pointed("out"), self._out(image, c, point), FLOAT32, LANES, mask)

    def channels_last(self, image: Index, point: Index, mask: ir.Value) -> None:
        """Point by point, all channels of a pixel at once; then the results are turned."""
        f, wide = self.f, VECTORS_AT_ONCE * LANES
        depth = f.mul(f.div(f.add(f.word("channels"), LANES - 1), LANES), LANES)
        done = f.sub(depth, f.rem(depth, wide))
        tile = f.local(FLOAT, count=LANES * wide)
        for lo, hi, count in ((0, done, VECTORS_AT_ONCE), (done, depth, 1)):
            with f.loop(lo, hi, count * LANES) as c:
                with f.loop(0, LANES) as lane:
                    base = f.add(f.mul(image, f.word("image_step")), c)
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
                pixel = f.load(f.pointed("pixels"), f.add(at, k * LANES), FLOAT32, LANES)
                f.change(total, f.fma(weight, pixel, f.read(total)))
        return [f.read(total) for total in totals]

    def _write(self, tile: ir.Value, column: Index, image: Index, c: Index, point: Index, mask: ir.Value) -> None:
        f = self.f
        lines = [f.load(tile, f.add(lane * VECTORS_AT_ONCE * LANES, column), FLOAT32, LANES) for lane in range(LANES)]
        for k, line in enumerate(turn(f, lines)):
            channel = f.add(c, k)
            with f.when(f.b.icmp_signed("<", f.value(channel), f.word("channels"))):
                f.store(line, f.pointed("out"), self._out(image, channel, point), FLOAT32, LANES, mask)

    def _out(self, image: Index, channel: Index, point: Index) -> Index:
        f = self.f
        return f.add(f.mul(f.add(f.mul(image, f.word("channels")), channel), f.word("points")), point)
