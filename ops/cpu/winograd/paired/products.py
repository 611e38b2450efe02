"""The products of a Winograd convolution with paired channels: a multiplication less for two of every three.

    a b + c d = (a + d) (c + b) - a c - b d        (S. Winograd, "A new algorithm for inner product", IEEE Transactions
                                                     on Computers C-17, 1968)

takes one multiplication and two additions for every output; the last two terms belong to a tile and to an output
channel, and are summed once. With b and d negative they have the other sign: that is so in every other lane, and keeps
sums small on the way. Processors with units for additions beside those for multiply-adds (Zen 4) have these idle
else. Of three blocks of channels the first is multiplied as ever, and channels of the second are paired with those of
the third: two multiply-adds and two additions for three products.

Rounding is in proportion to |V|² + |U|², least where both are alike (R. Brent, "Error analysis of algorithms for matrix
multiplication and triangular decomposition using Winograd's identity", Numer. Math. 16, 1970). So each tile is
transformed times a power of two that makes the inputs of its largest channel about 1 in all, and the weights of each
output channel in each plane are packed so, too. No tile errs by what is in another one.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import I64, Index, zeros
from brickrt.ops.cpu.products.register_tile import Accumulators
from brickrt.ops.cpu.winograd.frame import TileGroup, WinogradFrame
from brickrt.ops.cpu.winograd.input_transform import slot
from brickrt.ops.cpu.winograd.paired.tile_values import TileValues
from brickrt.ops.cpu.winograd.products import Products
from brickrt.ops.cpu.winograd.sizes import NEAR_WEIGHT_BYTES

VECTORS_AHEAD = 96  # of weights, which come from L2 or further away
TILES_AT_A_TIME = 4  # whose instructions stand side by side


class PairedProducts(Products):
    """Emits products with paired channels, of kernels without strides."""

    def __init__(self, frame: WinogradFrame) -> None:
        super().__init__(frame)
        self.values = TileValues(frame)

    def returns(self, number: Index) -> ir.Value:
        """What takes sums of a plane's block of output channels back."""
        f, k, frame = self.f, self.k, self.frame
        return f.load(frame.w, f.add(k.returns_at, f.mul(number, k.lanes)), frame.dtype, k.lanes)

    def weight_pairs(self, number: Index) -> ir.Value:
        """The sums of the products of its weights' pairs at a swept tap."""
        f, k, frame = self.f, self.k, self.frame
        return f.load(frame.w, f.add(k.pairs_at, f.mul(number, k.lanes)), frame.dtype, k.lanes)

    def blocks(self, group: TileGroup, live: tuple[Index, Index], plane: Index, block: Index, count: int) -> None:
        """A block of output channels, for the register tiles of the group that are `live`."""
        f, k, frame = self.f, self.k, self.frame
        each = f.sub(live[1], live[0])
        turns = f.mul(f.sub(group.hi, group.lo), each)
        for t in self.register_tiles():
            with f.loop(group.lo, group.hi) as at, f.loop(*live) as g:
                later = f.sub(at, group.lo)
                own = f.add(f.mul(f.add(f.mul(later, group.blocks), g), frame.own), f.sub(block, frame.first_block))
                place = f.add(f.mul(plane, k.plane_out), f.mul(own, t * k.lanes))
                turn = f.add(f.mul(later, each), f.sub(g, live[0]))
                tile = PairedWinogradTile(self, (plane, block), t, f.address(frame.m, place, frame.dtype), turn, turns)
                tile.clear()
                with self.live_taps(at) as (tap, z):
                    tile.add(tap, slot(frame, z), g)


class PairedWinogradTile:
    """A register tile of `t` tiles in a plane and a block of output channels (`which`), whose sums are left in `to`.
    It is number `turn` of `turns` that read the same weights."""

    def __init__(
        self, products: PairedProducts, which: tuple[Index, Index], t: int, to: ir.Value, turn: Index, turns: Index
    ) -> None:
        self.products, self.frame, self.f, self.k = products, products.frame, products.f, products.k
        self.plane, self.block = which
        self.t, self.to, self.turn, self.turns = t, to, turn, turns
        self.number = self.f.add(self.f.mul(self.plane, self.k.out.channel_blocks), self.block)

    @property
    def sums_up(self) -> bool:
        """Whether there are several swept taps, whose tiles have powers of two of their own: they meet in `to`."""
        return self.k.axes.swept.r > 1

    def clear(self) -> None:
        """Before the first of several swept taps."""
        for i in range(self.t if self.sums_up else 0):
            self.f.store(zeros(self.frame.kind), self.to, i * self.k.lanes, self.frame.dtype, self.k.lanes)

    def add(self, tap: Index, slot: Index, g: Index) -> None:
        """The products at a swept tap, which reads a plane in a slot of the ring; `g` is the register tile there."""
        f, k, frame, values = self.f, self.k, self.frame, self.products.values
        tile = f.add(f.mul(slot, k.room[0]), f.mul(g, self.t))
        number = f.add(f.mul(self.number, k.axes.swept.r), tap)
        start = f.b.fneg(self.products.weight_pairs(number))
        acc = Accumulators.create(f, [start], self.t, frame.dtype, k.lanes)
        for i in range(self.t):
            acc.put(0, i, f.b.fsub(start, f.splat(values.pairs(f.add(tile, i), self.plane), k.lanes)))
        row = f.mul(f.add(f.mul(slot, self.frame.plane_tiles), g), k.depth_in)
        at = f.add(f.mul(self.plane, k.plane_in), f.mul(row, self.t * k.lanes))
        self.sweep(acc, f.address(frame.v, at, frame.dtype), self.products.panel(self.plane, self.block, tap, 0))
        self.leave(acc, tile)

    def leave(self, acc: Accumulators, tile: Index) -> None:
        """Takes the sums back."""
        f, k, frame = self.f, self.k, self.frame
        columns = self.products.returns(self.number)
        for i in range(self.t):
            own = f.splat(self.products.values.back(f.add(tile, i)), k.lanes)
            value = f.b.fmul(f.b.fmul(acc.value(0, i), columns), own)
            if self.sums_up:
                value = f.b.fadd(value, f.load(self.to, i * k.lanes, frame.dtype, k.lanes))
            f.store(value, self.to, i * k.lanes, frame.dtype, k.lanes)

    def sweep(self, acc: Accumulators, pixels: ir.Value, weights: ir.Value) -> None:
        """Adds all input channels: three blocks at a time, then what is left as ever."""
        f, k, dtype = self.f, self.k, self.frame.dtype
        with f.loop(0, k.triples) as n, f.loop(0, k.lanes, 2) as even:
            for odd in range(2):
                lane = f.add(even, odd)
                step = f.add(f.mul(n, k.lanes), lane)
                rows = f.address(weights, f.mul(step, 3 * k.lanes), dtype)
                factors = [f.load(rows, j * k.lanes, dtype, k.lanes) for j in range(3)]
                self.prefetch(rows, weights, step)
                start = f.address(pixels, f.add(f.mul(n, 3 * acc.pixels * k.lanes), lane), dtype)
                self.triple(acc, start, factors, odd == 1)
        whole, tail = divmod(k.ins[0].shape[1], k.lanes)
        with f.loop(3 * k.triples, whole) as c:
            self.products.channels(acc, pixels, weights, c, k.lanes)
        if tail:
            self.products.channels(acc, pixels, weights, whole, tail)

    def prefetch(self, rows: ir.Value, weights: ir.Value, step: Index) -> None:
        """Weights a little further on into L1; of those that are not near, this tile's share of the next block's into
        L2."""
        f, k, dtype = self.f, self.k, self.frame.dtype
        for j in range(3):
            f.prefetch(rows, (VECTORS_AHEAD + j) * k.lanes, dtype)
        if k.weight_bytes <= NEAR_WEIGHT_BYTES:
            return
        next_block = k.ins[0].shape[1] * k.lanes * k.axes.swept.r
        number = f.add(f.mul(self.turn, k.triples * k.lanes), step)
        few = f.b.icmp_signed("<", f.value(self.turns), I64(3))
        share = f.b.select(few, I64(3), I64(1))
        for j in range(3):
            vector = f.add(f.mul(number, share), f.minimum(j, f.sub(share, 1)))
            f.prefetch(weights, f.add(next_block, f.mul(vector, k.lanes)), dtype, near=False)

    def triple(self, acc: Accumulators, start: ir.Value, weights: Sequence[ir.Value], negative: bool) -> None:
        """A lane of three blocks, with the other sign if `negative`. Every value is used once, by an instruction that
        broadcasts it from memory."""
        f, k = self.f, self.k
        alone, second, third = weights

        def value(i: int, j: int) -> ir.Value:
            return f.splat(f.load(start, (j * acc.pixels + i) * k.lanes, self.frame.dtype), k.lanes)

        for first in range(0, acc.pixels, TILES_AT_A_TIME):
            tiles = range(first, min(first + TILES_AT_A_TIME, acc.pixels))
            for i in tiles:
                mixed = f.b.fsub if negative else f.b.fadd  # which may have memory on its right
                first_factor, second_factor = mixed(third, value(i, 1)), mixed(second, value(i, 2))
                first_factor = f.b.fneg(first_factor) if negative else first_factor
                acc.put(0, i, f.fma(first_factor, second_factor, acc.value(0, i)))
            for i in tiles:
                acc.put(0, i, f.fma(value(i, 0), alone, acc.value(0, i)))
