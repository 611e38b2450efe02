"""What the phases of a Winograd convolution share: pointers, the box, and the walk over a group's tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I32, I64, Index, vector
from brickrt.ops.cpu.products.register_tile import LoadWeight
from brickrt.ops.cpu.winograd.axes import Axis
from brickrt.ops.cpu.winograd.scheme import FLOAT32, WinogradScheme


@dataclass(frozen=True)
class AxisRange:
    """What an axis of a box reads and writes: outputs [lo, hi), inputs [first, last)."""

    axis: Axis
    lo: Index
    hi: Index
    first: Index
    last: Index


@dataclass(frozen=True)
class SideTiles:
    """Tiles along a side of a plane, and how many of them, the first, have all their outputs (see `Axis.shortens`)."""

    count: Index
    long: Index


@dataclass(frozen=True)
class TileGroup:
    """Tiles [first, first + count) of the box, in `blocks` register tiles; outputs [lo, hi) of the swept axis."""

    first: Index
    count: Index
    blocks: Index
    lo: Index
    hi: Index


@dataclass(frozen=True)
class WinogradTile:
    """Number in the box, register tile of the group and place in it, image, first output down and across, and one past
    the last."""

    number: Index
    block: Index
    place: Index
    n: Index
    corner: tuple[Index, Index]
    ends: tuple[Index, Index]


class WinogradFrame:
    """Loads addresses first.

    The tiles of a box are numbered so that those that a transformed plane has follow each other:

        rows of long tiles    short ones of each row (1), then long ones (2)
        rows of short tiles   long ones of each row (3), then short ones (4)

    The last plane down has tiles 1 and 2, the last across 2 and 3, all others have all.
    """

    def __init__(self, kernel: WinogradScheme, f: FunctionEmitter) -> None:
        self.k, self.f = kernel, f
        self.out, self.x, self.w = (f.pointer(i) for i in range(3))
        self.bias = f.pointer(3) if kernel.op.bias else None
        self.dtype: np.dtype = FLOAT32
        self.input_type = kernel.ins[0].dtype
        self.v = f.pointer(1 + len(kernel.ins))
        self.m = f.address(self.v, kernel.axes.planes * kernel.plane_in, self.dtype)
        self.kind = vector(FLOAT, kernel.lanes)
        self.swept, *self.plane = (self.span(axis) for axis in kernel.axes)
        lo, hi = f.box(1)
        self.first_block, self.last_block = f.div(lo, kernel.lanes), f.div(f.add(hi, kernel.lanes - 1), kernel.lanes)
        self.own = f.sub(self.last_block, self.first_block)
        self.images = f.box(0)
        self.down, self.across = (self.tiles_along(s) for s in self.plane)
        images = f.sub(self.images[1], self.images[0])
        self.total = f.mul(f.mul(images, self.down.count), self.across.count)
        self.down_short, self.across_short = (f.sub(side.count, side.long) for side in (self.down, self.across))
        self.long_rows = f.mul(images, self.down.long)
        self.short_rows = f.mul(images, self.down_short)
        self.in_long_rows = f.mul(self.long_rows, self.across.count)
        self.plane_tiles = kernel.group // kernel.t  # register tiles of a plane of V

    def span(self, axis: Axis) -> AxisRange:
        """What an axis of the box reads and writes."""
        f = self.f
        if axis.dim is None:
            return AxisRange(axis, 0, 1, 0, 1)
        lo, hi = f.box(axis.dim)
        first, end = f.sub(f.mul(lo, axis.stride), axis.pad), self.input_end(axis, hi)
        return AxisRange(axis, lo, hi, f.maximum(0, first), f.minimum(axis.extent, end))

    def input_end(self, axis: Axis, hi: Index) -> Index:
        """One past the last input that outputs before `hi` read."""
        return self.f.add(self.f.mul(self.f.sub(hi, 1), axis.stride), axis.reach - axis.pad)

    def tiles_along(self, span: AxisRange) -> SideTiles:
        """`Axis.tiles` at run time, as few of them long as can be."""
        f, axis = self.f, span.axis
        each = f.div(f.add(f.sub(span.hi, span.lo), axis.phases - 1), axis.phases)
        steps = f.div(f.add(each, axis.m - 1), axis.m)
        count = f.mul(steps, axis.phases)
        if not axis.shortens:
            return SideTiles(count, count)
        long = f.maximum(0, f.sub(each, f.mul(steps, axis.m - 1)))
        return SideTiles(count, f.mul(long, axis.phases))

    @contextmanager
    def tiles(self, group: TileGroup) -> Iterator[WinogradTile]:
        """Loops over a group's register tiles and the tiles of each."""
        f, k = self.f, self.k
        with f.loop(0, group.count, k.t) as first:
            block = f.b.udiv(f.value(first), f.value(k.t))
            with f.loop(0, f.minimum(k.t, f.sub(group.count, first))) as place:
                yield self.tile(f.value(f.add(group.first, first, place)), block, place)

    def tile(self, number: ir.Value, block: Index, place: Index) -> WinogradTile:
        """The tile of a number."""
        f, choose = self.f, self.choose
        below = f.b.icmp_signed(">=", number, f.value(self.in_long_rows))
        rest = f.b.sub(number, choose(below, self.in_long_rows, 0))
        short, long = self.across_short, self.across.long
        first, second = choose(below, long, short), choose(below, short, long)
        of_first = f.value(f.mul(choose(below, self.short_rows, self.long_rows), first))
        beyond = f.b.icmp_signed(">=", rest, of_first)
        rest, width = f.b.sub(rest, choose(beyond, of_first, 0)), choose(beyond, second, first)
        line = f.b.udiv(rest, width)
        column = f.b.sub(rest, f.b.mul(line, width))
        of_short = f.b.icmp_signed("==", below, beyond)
        rows = choose(below, self.down_short, self.down.long)
        image = f.b.udiv(line, rows)
        row = f.add(f.b.sub(line, f.b.mul(image, rows)), choose(below, self.down.long, 0))
        sides = (
            (self.plane[0], self.down, row),
            (self.plane[1], self.across, f.add(column, choose(of_short, long, 0))),
        )
        (y, y_end), (x, x_end) = (self.outputs_of(*side) for side in sides)
        return WinogradTile(number, block, place, f.add(self.images[0], image), (y, x), (y_end, x_end))

    def choose(self, condition: ir.Value, x: Index, y: Index) -> ir.Value:
        """`x` where a condition holds, else `y`."""
        return self.f.b.select(condition, self.f.value(x), self.f.value(y))

    def outputs_of(self, span: AxisRange, side: SideTiles, tile: Index) -> tuple[Index, Index]:
        """The first output of a tile of a side, and one past the last: every m·d outputs are a tile of each of d
        phases, and of short tiles (m - 1)·d."""
        f, axis, d = self.f, span.axis, span.axis.phases
        step, phase = (f.div(tile, d), f.rem(tile, d)) if d > 1 else (tile, 0)
        before: Index = 0
        short: Index = 0
        if axis.shortens:
            before = f.maximum(0, f.sub(step, f.div(side.long, d)))  # short tiles before this one
            short = f.b.zext(f.b.icmp_signed(">=", f.value(tile), f.value(side.long)), I64)
        first = f.add(span.lo, f.mul(f.sub(f.mul(step, axis.m), before), d), phase)
        return first, f.minimum(span.hi, f.add(first, f.mul(f.sub(axis.m, short), d)))

    def register_tiles_of(self, group: TileGroup, plane: Index) -> tuple[Index, Index]:
        """The first register tile of a group that a transformed plane has, and one past the last."""
        f, k, (_, down, across) = self.f, self.k, self.k.axes
        least, end = f.value(0), f.value(self.total)
        if across.shortens:
            last = f.b.icmp_signed("==", f.value(f.rem(plane, across.n)), I64(across.n - 1))
            least = self.choose(last, f.mul(self.long_rows, self.across_short), least)
            of_long = f.add(self.in_long_rows, f.mul(self.short_rows, self.across.long))
            end = self.choose(last, of_long, end)
        if down.shortens:
            last = f.b.icmp_signed(">=", f.value(plane), I64((down.n - 1) * across.n))
            end = self.choose(last, self.in_long_rows, end)
        first, past = (f.maximum(0, f.sub(at, group.first)) for at in (least, end))
        return f.div(first, k.t), f.minimum(group.blocks, f.div(f.add(past, k.t - 1), k.t))

    def strides(self, strides: Sequence[int]) -> list[int]:
        """A tensor's strides along swept, down, across."""
        return [0 if axis.dim is None else strides[axis.dim] for axis in self.k.axes]

    # ---- weights as they are

    @property
    def raw_weights(self) -> ir.Value:
        """Address of the weights as they are."""
        return self.f.address(self.w, self.k.transformed_elements, FLOAT32)

    def raw_at(self, block: Index, channel: Index, tap: Index) -> Index:
        """Where those of a block of output channels for a channel and a tap lie, in elements."""
        f, k = self.f, self.k
        tile, j = (f.div(block, k.ob), f.rem(block, k.ob)) if k.ob > 1 else (block, 0)
        row = f.add(f.mul(f.add(f.mul(tile, k.steps), channel), k.taps), tap)
        return f.add(f.mul(row, k.ob * k.lanes), f.mul(j, k.lanes))

    def raw_stream(self, base: ir.Value) -> LoadWeight:
        """Those of one block and tap for all channels, from `base` on."""
        f, k = self.f, self.k
        return lambda c, _: f.load(base, f.mul(c, k.taps * k.ob * k.lanes), k.raw_type, k.lanes)

    def flag(self) -> ir.Value:
        """int32 that is not 0 where weights must not be transformed."""
        f, k = self.f, self.k
        value = f.load(self.raw_weights, k.raw_elements, k.raw_type)
        return f.b.zext(f.b.fcmp_unordered("!=", value, ir.Constant(value.type, 0.0)), I32)

    def residue(self, at: tuple[Index, Index]) -> Index:
        """Number of a residue from those down and across."""
        return self.f.add(self.f.mul(at[0], self.k.axes.across.residues), at[1])

    def index(self, n: Index, channel: Index, at: Sequence[Index]) -> list[Index]:
        """Index into the output from coordinates along swept, down, across."""
        known = {axis.dim: i for axis, i in zip(self.k.axes, at, strict=True)}
        return [n, channel, *(known[dim] for dim in range(2, self.k.out.type.rank))]
