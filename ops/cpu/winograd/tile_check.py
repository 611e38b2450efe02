"""A close look at a suspect tile of a Winograd convolution (`tile_ranges.py`): at what each of its outputs reads.

The outputs are computed again, directly, where one of them reads only values 2**SPREAD times smaller than the largest
that one reads, or where a value is not finite or too large. Outputs that read zeros alone do not count here: they are
the bias, and are stored again where others of the tile are not zero.

    magnitudes: int32[swept tap][inputs down][inputs across], of each pixel; 0 for what the box does not read
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I1, I32, I64, Index
from brickrt.ops.cpu.emit.magnitudes import (
    BITS,
    NAN,
    greater,
    greatest_lane,
    lanes_before,
    lesser,
    magnitudes,
    must_not_mix,
    nothing,
)
from brickrt.ops.cpu.winograd.axes import Axis
from brickrt.ops.cpu.winograd.frame import AxisRange, WinogradFrame, WinogradTile

DIRECT = -(1 << 63)


class TileCheck:
    """Emits the look at one tile for one output plane."""

    def __init__(self, frame: WinogradFrame) -> None:
        self.frame, self.k, self.f = frame, frame.k, frame.f
        self.found = self.f.address(frame.v, frame.k.magnitudes_at, frame.dtype)
        self.strides = frame.strides(frame.k.ins[0].strides)

    def flags(self, tile: WinogradTile, z: Index) -> ir.Value:
        """A bit for each output that is to be stored again (see `bit`); negative where all are to be computed."""
        f, axes = self.f, self.k.axes
        spans = (self.frame.swept, *self.frame.plane)
        counts = (axes.swept.r, axes.down.inputs, axes.across.inputs)
        with f.loops([(0, count) for count in counts]) as place:
            inside, at = I1(1), f.mul(tile.n, self.k.ins[0].strides[0])
            for span, output, n, stride in zip(spans, (z, *tile.corner), place, self.strides, strict=True):
                index = f.value(f.add(tile_input(f, span.axis, output), f.mul(n, span.axis.dilation)))
                inside = f.b.and_(inside, reads(f, span, index))
                at = f.add(at, f.mul(index, stride))
            most = f.variable(I32(0))
            with f.when(inside):
                f.change(most, self.pixel(at))
            f.store(f.read(most), self.found, self.at(*place), BITS)
        return self.compared(tile)

    def pixel(self, at: Index) -> ir.Value:
        """The largest magnitude of a pixel's channels."""
        f, k, x = self.f, self.k, self.k.ins[0]
        if x.block == 1:
            most = f.variable(I32(0))
            with f.loop(0, x.shape[1]) as c:
                value = f.load(self.frame.x, f.add(at, f.mul(c, x.strides[1])), x.dtype)
                f.change(most, greater(f, f.read(most), magnitudes(f, value, I32(NAN))))
            return f.read(most)
        vectors = f.variable(nothing(k.lanes))
        with f.loop(0, k.blocks_in) as c:
            value = f.load(self.frame.x, f.add(at, f.mul(c, x.strides[1])), x.dtype, k.lanes)
            found = magnitudes(f, value, lanes_before(f, k.lanes, c, x.shape[1]))
            f.change(vectors, greater(f, f.read(vectors), found))
        return greatest_lane(f, f.read(vectors))

    def at(self, tap: Index, down: Index, across: Index) -> Index:
        """Where the magnitude of a pixel lies."""
        f, axes = self.f, self.k.axes
        return f.add(f.mul(f.add(f.mul(tap, axes.down.inputs), down), axes.across.inputs), across)

    def compared(self, tile: WinogradTile) -> ir.Value:
        """The flags, from what the outputs that belong to the box read."""
        f = self.f
        most, least, blank = f.variable(I32(0)), f.variable(I32(NAN)), f.variable(I64(0))
        with self.outputs(0, tile) as (i, _), self.outputs(1, tile) as (j, _):
            found = self.read(i, j)
            none = f.b.icmp_signed("==", found, I32(0))
            bit = f.b.shl(I64(1), f.value(self.bit(i, j)))
            f.change(blank, f.b.or_(f.read(blank), f.b.select(none, bit, I64(0))))
            f.change(most, greater(f, f.read(most), found))
            f.change(least, lesser(f, f.read(least), f.b.select(none, I32(NAN), found)))
        some = f.b.icmp_signed(">", f.read(most), I32(0))
        blank_again = f.b.select(some, f.read(blank), I64(0))
        direct = must_not_mix(f, f.read(most), f.read(least))
        return f.b.select(direct, I64(DIRECT), blank_again)

    def read(self, i: Index, j: Index) -> ir.Value:
        """The largest magnitude that an output of the tile reads."""
        f, axes = self.f, self.k.axes
        most = f.variable(I32(0))
        with f.loops([(0, axis.r) for axis in axes]) as (kz, ky, kx):
            at = self.at(kz, f.add(f.mul(i, axes.down.stride), ky), f.add(f.mul(j, axes.across.stride), kx))
            f.change(most, greater(f, f.read(most), f.load(self.found, at, BITS)))
        return f.read(most)

    @contextmanager
    def outputs(self, side: int, tile: WinogradTile) -> Iterator[tuple[Index, Index]]:
        """Number and index of a tile's outputs that belong to the box, down (side 0) or across (1)."""
        f, axis = self.f, self.k.axes[1 + side]
        with f.loop(0, axis.m) as i:
            at = f.add(tile.corner[side], f.mul(i, axis.dilation))
            with f.when(f.b.icmp_signed("<", f.value(at), f.value(tile.ends[side]))):
                yield i, at

    def bit(self, i: Index, j: Index) -> Index:
        """Number of the flag of output (i, j) of a tile."""
        return self.f.add(self.f.mul(i, self.k.axes.across.m), j)


def tile_input(f: FunctionEmitter, axis: Axis, output: Index) -> Index:
    """The first input that an output reads along an axis, perhaps on padding."""
    return f.sub(f.mul(output, axis.stride), axis.pad)


def reads(f: FunctionEmitter, span: AxisRange, index: Index) -> ir.Value:
    """Whether the box reads an input."""
    least = f.b.icmp_signed(">=", index, f.value(span.first))
    return f.b.and_(least, f.b.icmp_signed("<", index, f.value(span.last)))
