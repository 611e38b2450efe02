"""The code of a convolution's last block of output channels where it has few (few_outputs.py tells how they lie)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I32, I64, Index, register_type, vector, zeros
from brickrt.ops.cpu.operands.epilogue import offset_of
from brickrt.ops.cpu.products.conv_body import ConvBody
from brickrt.ops.cpu.products.conv_operands import TilePosition
from brickrt.ops.cpu.products.conv_scheme import ConvScheme
from brickrt.ops.cpu.products.few_outputs import FewOutputs
from brickrt.ops.cpu.products.register_tile import Accumulators, LoadWeight
from brickrt.ops.cpu.products.row_tiles import PixelTile


@dataclass(frozen=True)
class FewOutputsAccumulators(Accumulators):
    """One vector per pixel, whose lanes are outputs by `ways` input channels."""

    ways: int = 1

    def multiply_add(
        self,
        pixels: ir.Value,
        offsets: Sequence[int | None],
        stride: Index,
        channels: int,
        weight: Callable[[Index, int], ir.Value],
    ) -> None:
        """As `Accumulators.multiply_add`, of `ways` adjacent channels a step; `weight` counts steps."""
        f, (steps, rest) = self.f, divmod(channels, self.ways)
        live = [(t, offset) for t, offset in enumerate(offsets) if offset is not None]
        with f.loop(0, steps) as c:
            self.step(f.address(pixels, f.mul(c, f.mul(stride, self.ways)), self.dtype), live, weight(c, 0), self.ways)
        if rest:
            self.step(f.address(pixels, f.mul(stride, steps * self.ways), self.dtype), live, weight(steps, 0), rest)

    def step(self, row: ir.Value, live: Sequence[tuple[int, int]], weight: ir.Value, count: int) -> None:
        """Adds the products of `count` channels, which may be fewer than `ways`."""
        f = self.f
        for t, offset in live:
            self.put(0, t, f.fma(self.spread(row, offset, count), weight, self.value(0, t)))

    def spread(self, row: ir.Value, offset: int, count: int) -> ir.Value:
        """`count` channels of a pixel, zeros up to `ways`, repeated over the lanes."""
        f = self.f
        part = f.load(row, offset, self.dtype, count)
        if self.ways == 1:
            return f.splat(part, self.lanes)
        if count == 1:
            whole = ir.VectorType(register_type(self.dtype), 2)
            part, count = f.b.insert_element(ir.Constant(whole, None), part, I32(0)), 2
        picks = [min(lane % self.ways, count) for lane in range(self.lanes)]  # element `count` is a zero
        return f.shuffle(part, ir.Constant(part.type, None), picks)

    def finished(self) -> list[ir.Value]:
        """Adds up what channels share: vectors of `ways` pixels by `lanes / ways` outputs."""
        values = [self.value(0, t) for t in range(self.pixels)]
        ways = self.ways
        while ways > 1:
            values = [self.add_adjacent(*values[k : k + 2]) for k in range(0, len(values), 2)]
            ways //= 2
        return values

    def add_adjacent(self, a: ir.Value, b: ir.Value | None = None) -> ir.Value:
        """The sums of adjacent lanes of `a`, then those of `b`."""
        f, b = self.f, a if b is None else b
        even, odd = (f.shuffle(a, b, list(range(k, 2 * self.lanes, 2))) for k in (0, 1))
        return f.b.fadd(even, odd)


class FewOutputsBody(ConvBody):
    """Emits the last block of output channels; loops and taps are those of the other blocks."""

    def __init__(self, kernel: ConvScheme, f: FunctionEmitter, few: FewOutputs) -> None:
        super().__init__(kernel, f)
        self.few = few

    @property
    def most(self) -> int:
        """Pixels of a tile: their finished sums fill whole vectors where lanes are half as many as registers."""
        return self.k.isa.registers // (4 if self.k.sums.itemsize == 8 else 2)

    def accumulators(self, place: TilePosition, count: int) -> FewOutputsAccumulators:
        """Begun with zero, since several lanes are added up for an output."""
        f, few = self.f, self.few
        zero = zeros(vector(register_type(self.k.sums), few.lanes))
        sums = tuple(f.variable(zero) for _ in range(count))
        return FewOutputsAccumulators(f, 1, count, self.k.x.dtype, few.lanes, (sums,), ways=few.ways)

    def weights(self, place: TilePosition, q: Index, channels: int, tap: Index) -> LoadWeight:
        """As those of other blocks, for a step of `ways` channels of unit `q` at a tap."""
        f, k = self.f, self.k
        if not k.packed[1]:
            return self.loose_weights(place, q, tap)
        ways, lanes = self.few.ways, self.few.lanes
        unit, steps = (-(-count // ways) for count in (k.unit, channels))
        others = f.address(self.w, k.tiled_blocks * k.group_in * k.taps * k.lanes, k.weight_type)
        base = f.address(others, f.mul(f.add(f.mul(q, k.taps * unit), f.mul(tap, steps)), lanes), k.weight_type)
        return lambda c, j: f.load(base, f.mul(c, lanes), k.weight_type, lanes)

    def finish(self, acc: Accumulators, place: TilePosition, out_x: Index, tile: PixelTile) -> None:
        """Adds up the lanes of each output, then bias and epilogue."""
        assert isinstance(acc, FewOutputsAccumulators)
        bias = self.initial(place)[0]
        if self.k.out.block == 1:
            self.store_rows(acc.finished(), bias, place, out_x, tile)
        else:
            self.store_blocks(acc.finished(), bias, place, out_x, tile)

    def store_blocks(
        self, sums: list[ir.Value], bias: ir.Value, place: TilePosition, out_x: Index, tile: PixelTile
    ) -> None:
        """A vector per pixel; the lanes beyond the outputs are anything."""
        f, k = self.f, self.k
        ways, outputs = self.few.ways, self.few.outputs
        anything = ir.Constant(sums[0].type, ir.Undefined)
        for t in range(tile.count):
            picks = [t % ways * outputs + lane if lane < outputs else self.few.lanes for lane in range(k.lanes)]
            value = f.b.fadd(f.shuffle(sums[t // ways], anything, picks), bias)
            index = [place.n, f.mul(place.block, k.lanes), *place.at, f.add(out_x, t * tile.step)]
            value = self.epilogue.apply(value, index)
            f.store(value, self.out, offset_of(f, k.out, index), k.out.dtype, k.lanes)

    def store_rows(
        self, sums: list[ir.Value], bias: ir.Value, place: TilePosition, out_x: Index, tile: PixelTile
    ) -> None:
        """A row of pixels per output channel of the box."""
        f, k = self.f, self.k
        lo, hi = f.box(1)
        for m in range(k.group_out):
            wanted = f.b.and_(f.b.icmp_signed("<=", lo, I64(m)), f.b.icmp_signed("<", I64(m), hi))
            with f.when(wanted):
                one = f.splat(f.b.extract_element(bias, I32(m)), k.lanes)
                for first in range(0, tile.count, k.lanes):
                    count = min(k.lanes, tile.count - first)
                    mask = None if count == k.lanes else f.tail_mask(count, k.lanes)
                    index = [place.n, m, *place.at, f.add(out_x, first)]
                    value = f.b.fadd(self.output_row(sums, m, first, count), one)
                    value = self.epilogue.apply(value, index, mask)
                    f.store(value, self.out, offset_of(f, k.out, index), k.out.dtype, k.lanes, mask)

    def output_row(self, sums: list[ir.Value], m: int, first: int, count: int) -> ir.Value:
        """Output `m` of `count` pixels from `first` on; the lanes beyond repeat the last."""
        f, k = self.f, self.k
        ways, outputs = self.few.ways, self.few.outputs
        pixels = [first + min(lane, count - 1) for lane in range(k.lanes)]
        sources = [(p // ways, p % ways * outputs + m) for p in pixels]
        numbers = sorted({number for number, _ in sources})
        value = sums[numbers[0]]
        value = f.shuffle(value, value, [lane if number == numbers[0] else 0 for number, lane in sources])
        for wanted in numbers[1:]:
            picks = [k.lanes + at if number == wanted else lane for lane, (number, at) in enumerate(sources)]
            value = f.shuffle(value, sums[wanted], picks)
        return value
