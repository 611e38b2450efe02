"""What the phases of a Winograd convolution share: pointers, the box, and the walk over a group's tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I32, Index, vector
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
class TileGroup:
    """Tiles [first, first + count) of the box, in `blocks` register tiles; outputs [lo, hi) of the swept axis."""

    first: Index
    count: Index
    blocks: Index
    lo: Index
    hi: Index


@dataclass(frozen=True)
class WinogradTile:
    """Number in the box, register tile of the group and place in it, image, and first output down and across."""

    number: Index
    block: Index
    place: Index
    n: Index
    corner: tuple[Index, Index]


class WinogradFrame:
    """Loads addresses first."""

    def __init__(self, kernel: WinogradScheme, f: FunctionEmitter) -> None:
        self.k, self.f = kernel, f
        self.out, self.x, self.w = (f.pointer(i) for i in range(3))
        self.bias = f.pointer(3) if kernel.op.bias else None
        self.dtype, self.input_type = FLOAT32, kernel.ins[0].dtype
        self.v = f.pointer(1 + len(kernel.ins))
        self.m = f.address(self.v, kernel.axes.planes * kernel.plane_in, self.dtype)
        self.kind = vector(FLOAT, kernel.lanes)
        self.swept, *self.plane = (self.span(axis) for axis in kernel.axes)
        lo, hi = f.box(1)
        self.first_block, self.last_block = f.div(lo, kernel.lanes), f.div(f.add(hi, kernel.lanes - 1), kernel.lanes)
        self.own = f.sub(self.last_block, self.first_block)
        self.images = f.box(0)
        self.down, self.across = (self.tiles_along(s) for s in self.plane)
        self.per_image = f.mul(self.down, self.across)
        self.total = f.mul(f.sub(self.images[1], self.images[0]), self.per_image)

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

    def tiles_along(self, span: AxisRange) -> Index:
        """`Axis.tiles` at run time."""
        f, axis = self.f, span.axis
        each = f.div(f.add(f.sub(span.hi, span.lo), axis.phases - 1), axis.phases)
        return f.mul(f.div(f.add(each, axis.m - 1), axis.m), axis.phases)

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
        f = self.f
        image = f.b.udiv(number, f.value(self.per_image))
        index = f.b.sub(number, f.value(f.mul(image, self.per_image)))
        row = f.b.udiv(index, f.value(self.across))
        column = f.b.sub(index, f.value(f.mul(row, self.across)))
        y, x = (self.origin(s, at) for s, at in zip(self.plane, (row, column), strict=True))
        return WinogradTile(number, block, place, f.add(self.images[0], image), (y, x))

    def origin(self, span: AxisRange, tile: Index) -> Index:
        """First output of a tile of an axis: every m·d outputs are a tile of each of d phases."""
        f, d = self.f, span.axis.phases
        if d == 1:
            return f.add(span.lo, f.mul(tile, span.axis.m))
        return f.add(span.lo, f.mul(f.div(tile, d), span.axis.m * d), f.rem(tile, d))

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
        row = f.add(f.mul(f.add(f.mul(tile, k.ins[0].shape[1]), channel), k.taps), tap)
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

    def before(self, at: Index, span: AxisRange) -> ir.Value:
        """at < end of the box."""
        return self.f.b.icmp_signed("<", self.f.value(at), self.f.value(span.hi))
