"""The input transform of a Winograd convolution with paired channels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.emit.magnitudes import greater, greatest_lane, lanes_before, magnitudes, nothing
from brickrt.ops.cpu.winograd.frame import WinogradFrame, WinogradTile
from brickrt.ops.cpu.winograd.input_transform import InputTransform, slot
from brickrt.ops.cpu.winograd.paired.tile_values import TileValues
from brickrt.ops.cpu.winograd.tile_ranges import TileRange


class PairedInput(InputTransform):
    """Emits the input transform for paired channels: of each tile times the power of two that `TileValues` tells."""

    def __init__(self, frame: WinogradFrame) -> None:
        super().__init__(frame)
        self.values = TileValues(frame)

    def plane(self, base: Index, corner: Sequence[Index], guarded: bool, tile: WinogradTile, z: Index) -> None:
        """Looks at all of a tile, then transforms it. A tile that is suspect may have what no output reads, and is
        looked at again."""
        f, k, found = self.f, self.k, TileRange(self.frame)
        step = k.ins[0].strides[1]
        with f.loop(0, k.blocks_in) as c:
            kept = lanes_before(f, k.lanes, c, k.ins[0].shape[1])
            self.look(found, f.add(base, f.mul(c, step)), corner, guarded, kept, (0, 0))
        number, suspect = self.suspects.at(slot(self.frame, z), tile), found.suspect()
        self.suspects.note(number, suspect)
        largest = partial(self.largest, base, corner, guarded, tile)
        scale = f.splat(self.values.scale(number, found.greatest(), suspect, largest), k.lanes)
        with f.loop(0, k.blocks_in) as c:
            d = self.read(f.add(base, f.mul(c, step)), corner, guarded)
            self.store([[f.b.fmul(value, scale) for value in row] for row in d], tile, z, c)
        self.values.add_pairs(number, self.vector_at(tile, z, 0), k.t * k.lanes)

    def largest(self, base: Index, corner: Sequence[Index], guarded: bool, tile: WinogradTile) -> ir.Value:
        """The greatest magnitude of what a tile's outputs read, as bits."""
        f, k = self.f, self.k
        most = f.variable(nothing(k.lanes))
        rows, columns = (
            f.add(f.div(f.add(f.sub(end, first), axis.dilation - 1), axis.dilation), axis.taps - 1)
            for first, end, axis in zip(tile.corner, tile.ends, self.axes, strict=True)
        )
        with f.loop(0, k.blocks_in) as c, f.loop(0, rows) as row, f.loop(0, columns) as column:
            value = self.input(f.add(base, f.mul(c, k.ins[0].strides[1])), corner, (row, column), guarded)
            kept = lanes_before(f, k.lanes, c, k.ins[0].shape[1])
            f.change(most, greater(f, f.read(most), magnitudes(f, value, kept)))
        return greatest_lane(f, f.read(most))
