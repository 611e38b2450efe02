"""Numbers of a tile whose channels are paired: what takes its sums back, and the sums of the products of its pairs."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import FLOAT, I32, Index, zeros
from brickrt.ops.cpu.emit.magnitudes import EXPONENT_OF_ONE, FOUR, MANTISSA, POWER, fold_four
from brickrt.ops.cpu.winograd.frame import WinogradFrame

HIGHEST = 126  # as a power of two, of numbers of which the inverse is no smaller than others
LEAST_EXACT_SUM = 2.0**-100  # of squares: it is exact enough to tell a size by


class TileValues:
    """Emits their computation and their use; tiles are numbered through the planes of the ring."""

    def __init__(self, frame: WinogradFrame) -> None:
        self.frame, self.f, self.k = frame, frame.f, frame.k
        self.start = frame.f.address(frame.v, frame.k.values_at, frame.dtype)

    def at(self, tile: Index, number: Index) -> Index:
        """Where a number of a tile lies."""
        return self.f.add(self.f.mul(tile, self.k.tile_values), number)

    def back(self, tile: Index) -> ir.Value:
        """What takes its sums back."""
        return self.f.load(self.start, self.at(tile, self.k.tile_values - 1), self.frame.dtype)

    def pairs(self, tile: Index, plane: Index) -> ir.Value:
        """The sum of the products of its pairs in one of the n² planes."""
        return self.f.load(self.start, self.at(tile, plane), self.frame.dtype)

    def scale(self, tile: Index, square: ir.Value, suspect: ir.Value, largest: Callable[[], ir.Value]) -> ir.Value:
        """The power of two that brings the tile's inputs near to 1, by the greatest sum of squares of a channel; where
        that is small, or the tile is `suspect`, by the largest input's bits, which `largest` finds out. What takes sums
        back is noted: 0 for a tile of zeros, whose sums are not quite 0."""
        f, b = self.f, self.f.b
        exponent = f.variable(b.ashr(b.sub(b.ashr(square, I32(MANTISSA)), I32(EXPONENT_OF_ONE)), I32(1)))
        keeps = f.variable(I32(1))
        small = b.fcmp_ordered("<", b.bitcast(square, FLOAT), ir.Constant(FLOAT, LEAST_EXACT_SUM))
        with f.when(b.or_(small, suspect)):
            bits = largest()
            f.change(exponent, b.sub(b.ashr(bits, I32(MANTISSA)), I32(EXPONENT_OF_ONE)))
            f.change(keeps, b.zext(b.icmp_signed("!=", bits, I32(0)), I32))
        power = f.math("smax", f.read(exponent), I32(-HIGHEST))
        scale, back = (
            b.bitcast(b.mul(b.add(signed, I32(EXPONENT_OF_ONE)), I32(POWER)), FLOAT)
            for signed in (b.sub(I32(0), power), power)
        )
        back = b.select(b.icmp_signed("!=", f.read(keeps), I32(0)), back, ir.Constant(FLOAT, 0.0))
        f.store(back, self.start, self.at(tile, self.k.tile_values - 1), self.frame.dtype)
        return scale

    def add_pairs(self, tile: Index, first: Index, step: int) -> None:
        """Sums the products of a tile's pairs, of even lanes less those of odd ones, plane by plane. Its vectors of V
        lie `step` elements apart from `first` on."""
        f, k, dtype = self.f, self.k, self.frame.dtype
        with f.loop(0, k.axes.planes, FOUR) as plane:
            totals = [f.variable(zeros(self.frame.kind)) for _ in range(FOUR)]
            planes = [f.minimum(f.add(plane, n), k.axes.planes - 1) for n in range(FOUR)]
            places = [f.add(first, f.mul(each, k.plane_in)) for each in planes]
            starts = [f.address(self.frame.v, place, dtype) for place in places]
            with f.loop(0, k.triples) as triple:
                for total, start in zip(totals, starts, strict=True):
                    at = f.mul(triple, 3 * step)
                    second, third = (f.load(start, f.add(at, n * step), dtype, k.lanes) for n in (1, 2))
                    f.change(total, f.fma(second, third, f.read(total)))
            signs = ir.Constant(self.frame.kind, [1.0 - lane % 2 * 2 for lane in range(k.lanes)])
            signed = [f.b.fmul(f.read(total), signs) for total in totals]
            sums = fold_four(f, signed, k.lanes, f.b.fadd)
            f.store(sums, self.start, self.at(tile, plane), dtype, FOUR)
