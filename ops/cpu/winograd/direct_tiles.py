"""Computes again what must not be mixed (`tile_check.py`): from the weights as they are, a row of a tile's outputs at a
time, so that these share the loads of weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import I32, I64, Index, zeros
from brickrt.ops.cpu.emit.magnitudes import BITS
from brickrt.ops.cpu.products.register_tile import Accumulators
from brickrt.ops.cpu.winograd.axes import Axis
from brickrt.ops.cpu.winograd.frame import TileGroup, WinogradFrame, WinogradTile
from brickrt.ops.cpu.winograd.input_transform import slot
from brickrt.ops.cpu.winograd.output_transform import OutputTransform
from brickrt.ops.cpu.winograd.tile_check import DIRECT, TileCheck, reads, tile_input
from brickrt.ops.cpu.winograd.tile_ranges import Suspects


class DirectTiles:
    """Emits the outputs of a group that are to be computed or stored again."""

    def __init__(self, frame: WinogradFrame) -> None:
        self.frame, self.k, self.f = frame, frame.k, frame.f
        self.suspects, self.check, self.outputs = Suspects(frame), TileCheck(frame), OutputTransform(frame)
        self.weights = frame.raw_weights
        self.strides = frame.strides(frame.k.ins[0].strides)
        self.zero = zeros(frame.kind)
        self.pixels = self.f.address(frame.v, frame.k.pixels_at, frame.dtype)
        self.sums = self.f.local(frame.kind, count=frame.k.axes.across.m)

    def emit(self, group: TileGroup) -> None:
        """Looks closely at all suspect tiles, plane by plane; not where all are to be computed in any case."""
        f, frame = self.f, self.frame
        with frame.tiles(group) as tile, f.loop(group.lo, group.hi) as z:
            suspect = f.variable(self.suspects.always)
            with self.taps(self.k.axes.swept, z) as (_, plane):
                flag = f.load(self.suspects.flags, self.suspects.at(slot(frame, plane), tile), BITS)
                f.change(suspect, f.b.or_(f.read(suspect), flag))
            with f.when(f.b.icmp_signed("!=", f.read(suspect), I32(0))):
                flags = f.variable(I64(DIRECT))
                with f.when(f.b.icmp_signed("==", self.suspects.always, I32(0))):
                    f.change(flags, self.check.flags(tile, z))
                with f.when(f.b.icmp_signed("!=", f.read(flags), I64(0))):
                    self.tile(tile, z, f.read(flags))

    def tile(self, tile: WinogradTile, z: Index, flags: ir.Value) -> None:
        """The flagged outputs of a tile in one plane, of all blocks of channels that the box has."""
        f, frame, check = self.f, self.frame, self.check
        direct = f.b.icmp_signed("<", flags, I64(0))
        with f.loop(frame.first_block, frame.last_block) as block, check.outputs(0, tile) as (i, y):
            with f.when(direct):
                self.row(tile, block, z, y)
            with check.outputs(1, tile) as (j, x):
                bit = f.b.and_(f.b.lshr(flags, f.value(check.bit(i, j))), I64(1))
                with f.when(f.b.or_(direct, f.b.icmp_signed("!=", bit, I64(0)))):
                    total = f.b.select(
                        direct, f.load(self.sums, f.mul(j, self.k.lanes), frame.dtype, self.k.lanes), self.zero
                    )
                    self.outputs.finish(total, frame.index(tile.n, f.mul(block, self.k.lanes), (z, y, x)))

    def row(self, tile: WinogradTile, block: Index, z: Index, y: Index) -> None:
        """A row of a tile's outputs, for a block of channels: sums of all taps."""
        f, k, (swept, down, across), channels = self.f, self.k, self.k.axes, self.k.ins[0].shape[1]
        sums = Accumulators.create(f, [self.zero], across.m, self.frame.dtype, k.lanes)
        with self.taps(swept, z) as (kz, plane), self.taps(down, y) as (ky, line):
            start = f.add(f.mul(tile.n, k.ins[0].strides[0]), f.dot((plane, line), self.strides[:2]))
            self.copy(start, tile_input(f, across, tile.corner[1]))
            first = f.mul(f.add(f.mul(kz, down.r), ky), across.r)
            with f.loop(0, across.r) as kx:
                weights = f.address(self.weights, self.frame.raw_at(block, 0, f.add(first, kx)), k.raw_type)
                pixels = f.address(self.pixels, f.mul(kx, k.row_pixel), self.frame.dtype)
                offsets = [j * across.stride * k.row_pixel for j in range(across.m)]
                sums.multiply_add(pixels, offsets, 1, channels, self.frame.raw_stream(weights))
        for j in range(across.m):
            f.store(sums.value(0, j), self.sums, j * k.lanes, self.frame.dtype, k.lanes)

    def copy(self, start: Index, first: Index) -> None:
        """All channels of the pixels that a row of a tile's outputs reads; zero for what the box does not read."""
        f, k, x, dtype, span = self.f, self.k, self.k.ins[0], self.frame.dtype, self.frame.plane[1]
        axis, lanes = span.axis, x.block
        with f.loop(0, axis.inputs) as n:
            place = f.value(f.add(first, f.mul(n, axis.dilation)))
            inside = reads(f, span, place)
            at = f.add(start, f.mul(f.b.select(inside, place, f.value(span.first)), self.strides[2]))
            with f.loop(0, x.channel_blocks) as c:
                value = f.load(self.frame.x, f.add(at, f.mul(c, x.strides[1])), x.dtype, lanes)
                value = f.b.select(inside, value, zeros(value.type))
                f.store(value, self.pixels, f.add(f.mul(n, k.row_pixel), f.mul(c, lanes)), dtype, lanes)

    @contextmanager
    def taps(self, axis: Axis, at: Index) -> Iterator[tuple[Index, Index]]:
        """The taps along an axis that fall on the tensor, and the input that each reads."""
        f = self.f
        with f.loop(0, axis.r) as tap:
            index = f.value(f.add(tile_input(f, axis, at), f.mul(tap, axis.dilation)))
            with f.when(f.b.icmp_unsigned("<", index, f.value(axis.extent))):
                yield tap, index
