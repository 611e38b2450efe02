"""The code of a Winograd convolution: per group of tiles, input transform, products, output transform."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llvmlite import ir

from brickrt.ops.cpu.emit import FLOAT, Fn, Index, vector
from brickrt.ops.cpu.epilogue import offset_of
from brickrt.ops.cpu.products import Accumulators
from brickrt.ops.cpu.winograd_math import input_rows, output_rows

if TYPE_CHECKING:
    from brickrt.ops.cpu.winograd import WinogradKernel


@dataclass(frozen=True)
class Span:
    """What a dimension of a box reads and writes: outputs [lo, hi), inputs [first, last)."""

    lo: Index
    hi: Index
    first: Index
    last: Index
    pad: int


class WinogradBody:
    def __init__(self, kernel: WinogradKernel, f: Fn) -> None:
        self.k, self.f = kernel, f
        self.out, self.x, self.w = (f.pointer(i) for i in range(3))
        self.bias = f.pointer(3) if kernel.op.bias else None
        self.v = f.pointer(1 + len(kernel.ins))
        self.dtype = kernel.out.dtype
        self.m_ = f.address(self.v, kernel.n**2 * kernel.plane_in, self.dtype)
        self.kind = vector(FLOAT, kernel.lanes)
        self.epilogue = kernel.epilogue.bind(f)
        self.spans = [self.span(axis) for axis in (0, 1)]
        lo, hi = f.box(1)
        self.first_block, self.last_block = f.div(lo, kernel.lanes), f.div(f.add(hi, kernel.lanes - 1), kernel.lanes)

    def span(self, axis: int) -> Span:
        f, pad = self.f, self.k.op.pads[axis]
        lo, hi = f.box(2 + axis)
        last = f.minimum(self.k.ins[0].shape[2 + axis], f.add(hi, 2 - pad))
        return Span(lo, hi, f.maximum(0, f.sub(lo, pad)), last, pad)

    def emit(self) -> None:
        f, k = self.f, self.k
        down, across = (f.div(f.add(f.sub(s.hi, s.lo), k.m - 1), k.m) for s in self.spans)
        self.across = across
        total = f.mul(down, across)
        with f.loop(*f.box(0)) as n, f.loop(0, total, k.group) as first:
            count = f.minimum(k.group, f.sub(total, first))
            self.transform_input(n, first, count)
            self.multiply(f.div(f.add(count, k.t - 1), k.t))
            self.transform_output(n, first, count)

    @contextmanager
    def tiles(self, first: Index, count: Index) -> Iterator[tuple[Index, Index, Index, Index]]:
        """Loop over a group's tiles: block of T tiles, place in it, row and column of the tile's first output."""
        f, k = self.f, self.k
        with f.loop(0, count) as t:
            index = f.value(f.add(first, t))
            row = f.b.udiv(index, f.value(self.across))
            column = f.sub(index, f.mul(row, self.across))
            y, x = f.add(self.spans[0].lo, f.mul(row, k.m)), f.add(self.spans[1].lo, f.mul(column, k.m))
            yield f.div(t, k.t), f.rem(t, k.t), y, x

    # ---- input

    def transform_input(self, n: Index, first: Index, count: Index) -> None:
        f, k = self.f, self.k
        x = k.ins[0]
        with self.tiles(first, count) as (block, place, oy, ox):
            corner = f.sub(oy, self.spans[0].pad), f.sub(ox, self.spans[1].pad)
            with f.b.if_else(self.covered(corner)) as (whole, partial):
                for guarded, branch in ((False, whole), (True, partial)):
                    with branch, f.loop(0, k.blocks_in) as c:
                        base = f.add(f.mul(n, x.strides[0]), f.mul(c, x.strides[1]))
                        d = self.guarded(base, corner) if guarded else self.direct(base, corner)
                        self.store_input(d, block, c, place)

    def covered(self, corner: Sequence[Index]) -> ir.Value:
        """Whether all n×n inputs of a tile are read by the box and on the tensor."""
        f, ok = self.f, ir.Constant(ir.IntType(1), 1)
        for at, span in zip(corner, self.spans, strict=True):
            ok = f.b.and_(ok, f.b.icmp_signed(">=", f.value(at), f.value(span.first)))
            ok = f.b.and_(ok, f.b.icmp_signed("<=", f.value(f.add(at, self.k.n)), f.value(span.last)))
        return ok

    def direct(self, base: Index, corner: Sequence[Index]) -> list[list[ir.Value]]:
        f, k = self.f, self.k
        sy, sx = k.ins[0].strides[2:]
        start = f.address(self.x, f.add(base, f.dot(corner, (sy, sx))), self.dtype)
        return [[f.load(start, r * sy + c * sx, self.dtype, k.lanes) for c in range(k.n)] for r in range(k.n)]

    def guarded(self, base: Index, corner: Sequence[Index]) -> list[list[ir.Value]]:
        """Zero where an input is not read by the box: on padding, and beyond what the box needs."""
        f, k = self.f, self.k
        zero = ir.Constant(self.kind, None)
        sides = zip(corner, self.spans, strict=True)
        axes = [[self.clamped(f.add(at, i), span) for i in range(k.n)] for at, span in sides]

        def pixel(r: int, c: int) -> ir.Value:
            (y, y_ok), (x, x_ok) = axes[0][r], axes[1][c]
            value = f.load(self.x, f.add(base, f.dot((y, x), k.ins[0].strides[2:])), self.dtype, k.lanes)
            return f.b.select(f.b.and_(y_ok, x_ok), value, zero)

        return [[pixel(r, c) for c in range(k.n)] for r in range(k.n)]

    def clamped(self, at: Index, span: Span) -> tuple[Index, ir.Value]:
        """An index that may be read, and whether it is the one asked for."""
        f = self.f
        inside = f.maximum(span.first, f.minimum(at, f.sub(span.last, 1)))
        return inside, f.b.icmp_signed("==", f.value(inside), f.value(at))

    def store_input(self, d: list[list[ir.Value]], block: Index, c: Index, place: Index) -> None:
        """Bᵀ d B into V; each row is stored before the next is computed, which spills less."""
        f, k = self.f, self.k
        columns = [input_rows(f, [row[x] for row in d], k.m) for x in range(k.n)]
        at = f.add(f.mul(f.add(f.mul(block, k.blocks_in), c), k.t * k.lanes), f.mul(place, k.lanes))
        start = f.address(self.v, at, self.dtype)
        for r in range(k.n):
            for x, value in enumerate(input_rows(f, [column[r] for column in columns], k.m)):
                f.store(value, start, (r * k.n + x) * k.plane_in, self.dtype, k.lanes)

    # ---- products

    def multiply(self, groups: Index) -> None:
        """The n² products for all blocks of T tiles of the group."""
        f, k = self.f, self.k
        all_blocks = k.out.channel_blocks
        rest = all_blocks % k.ob
        with f.loop(0, k.n**2) as plane:
            with f.loop(self.first_block, f.minimum(self.last_block, all_blocks - rest), k.ob) as block:
                self.multiply_blocks(plane, block, k.ob, groups)
            if rest:
                with f.loop(f.maximum(self.first_block, all_blocks - rest), self.last_block, rest) as block:
                    self.multiply_blocks(plane, block, rest, groups)

    def multiply_blocks(self, plane: Index, block: Index, count: int, groups: Index) -> None:
        f, k = self.f, self.k
        width, channels = k.ob * k.lanes, k.ins[0].shape[1]
        tiles = -(-k.out.channel_blocks // k.ob)
        panel = f.mul(f.add(f.mul(plane, tiles), f.div(block, k.ob)), channels * width)
        weights = f.address(self.w, panel, self.dtype)
        zero = ir.Constant(self.kind, None)
        with f.loop(0, groups) as g:
            acc = Accumulators.create(f, [zero] * count, k.t, self.dtype, k.lanes)
            whole, tail = divmod(channels, k.lanes)
            with f.loop(0, whole) as c:
                self.multiply_channels(acc, plane, g, c, weights, k.lanes)
            if tail:
                self.multiply_channels(acc, plane, g, whole, weights, tail)
            self.store_products(acc, plane, g, f.sub(block, self.first_block))

    def multiply_channels(
        self, acc: Accumulators, plane: Index, g: Index, c: Index, weights: ir.Value, channels: int
    ) -> None:
        f, k = self.f, self.k
        width = k.ob * k.lanes
        at = f.add(f.mul(plane, k.plane_in), f.mul(f.add(f.mul(g, k.blocks_in), c), k.t * k.lanes))
        rows = f.address(weights, f.mul(c, k.lanes * width), self.dtype)
        acc.multiply_add(
            f.address(self.v, at, self.dtype),
            [t * k.lanes for t in range(k.t)],
            1,
            channels,
            lambda lane, j: f.load(rows, f.add(f.mul(lane, width), j * k.lanes), self.dtype, k.lanes),
        )

    def store_products(self, acc: Accumulators, plane: Index, g: Index, block: Index) -> None:
        f, k = self.f, self.k
        own = f.sub(self.last_block, self.first_block)
        at = f.add(f.mul(plane, k.plane_out), f.mul(f.add(f.mul(g, own), block), k.t * k.lanes))
        start = f.address(self.m_, at, self.dtype)
        for j in range(acc.blocks):
            for t in range(k.t):
                f.store(acc.value(j, t), start, (j * k.t + t) * k.lanes, self.dtype, k.lanes)

    # ---- output

    def transform_output(self, n: Index, first: Index, count: Index) -> None:
        f, k = self.f, self.k
        own = f.sub(self.last_block, self.first_block)
        with self.tiles(first, count) as (group, place, oy, ox), f.loop(0, own) as b:
            at = f.add(f.mul(f.add(f.mul(group, own), b), k.t * k.lanes), f.mul(place, k.lanes))
            start = f.address(self.m_, at, self.dtype)
            planes = [f.load(start, p * k.plane_out, self.dtype, k.lanes) for p in range(k.n**2)]
            columns = [output_rows(f, planes[c :: k.n], k.m) for c in range(k.n)]
            channel = f.mul(f.add(self.first_block, b), k.lanes)
            bias = None if self.bias is None else f.load(self.bias, channel, self.dtype, k.lanes)
            rows = [output_rows(f, [column[r] for column in columns], k.m) for r in range(k.m)]
            if bias is not None:
                rows = [[f.b.fadd(value, bias) for value in row] for row in rows]
            self.store_output(rows, n, channel, oy, ox)

    def store_output(self, rows: list[list[ir.Value]], n: Index, channel: Index, oy: Index, ox: Index) -> None:
        """All m×m outputs where they fit into the box, else those that do."""
        f, k = self.f, self.k
        fits = f.b.and_(self.before(f.add(oy, k.m - 1), 0), self.before(f.add(ox, k.m - 1), 1))
        with f.b.if_else(fits) as (whole, partial):
            with whole:
                for r, row in enumerate(rows):
                    for c, value in enumerate(row):
                        self.store_pixel(value, [n, channel, f.add(oy, r), f.add(ox, c)])
            with partial:
                for r, row in enumerate(rows):
                    for c, value in enumerate(row):
                        y, x = f.add(oy, r), f.add(ox, c)
                        with f.when(f.b.and_(self.before(y, 0), self.before(x, 1))):
                            self.store_pixel(value, [n, channel, y, x])

    def before(self, at: Index, axis: int) -> ir.Value:
        """at < end of the box."""
        return self.f.b.icmp_signed("<", self.f.value(at), self.f.value(self.spans[axis].hi))

    def store_pixel(self, value: ir.Value, index: list[Index]) -> None:
        f, k = self.f, self.k
        f.store(self.epilogue.apply(value, index), self.out, offset_of(f, k.out, index), self.dtype, k.lanes)
