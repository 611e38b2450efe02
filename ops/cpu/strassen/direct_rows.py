"""A close look at a suspect group of rows (`row_ranges.py`), and its products with the matrix as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import I32, Index
from brickrt.ops.cpu.emit.magnitudes import (
    BITS,
    NAN,
    greater,
    greatest_lane,
    kept_lanes,
    lesser,
    magnitudes,
    must_not_mix,
    nothing,
)
from brickrt.ops.cpu.products.register_tile import Accumulators
from brickrt.ops.cpu.strassen.frame import StrassenFrame
from brickrt.ops.cpu.strassen.sizes import part_rows, part_starts

MOST_BLOCKS_AT_A_TIME = 4  # of columns, whose sums are added up side by side


class DirectRows:
    """Emits the look at a group of the matrix at `corner`, and its outputs where they must be stored again."""

    def __init__(self, frame: StrassenFrame, corner: Sequence[Index]) -> None:
        self.frame, self.k, self.f, self.corner = frame, frame.k, frame.f, list(corner)
        self.parts = 2**self.k.levels
        self.found = self.f.local(I32, count=self.parts)
        self.a = self.f.address(frame.a, self.k.view.source(self.f, self.corner), frame.dtype)

    def emit(self, group: Index) -> None:
        """All rows where they must not be mixed; else those of zeros, which are the bias."""
        f = self.f
        most, least = f.variable(I32(0)), f.variable(I32(NAN))
        with self.rows(group) as (n, row):
            found = self.magnitude(row)
            f.store(found, self.found, n, BITS)
            none = f.b.icmp_signed("==", found, I32(0))
            f.change(most, greater(f, f.read(most), found))
            f.change(least, lesser(f, f.read(least), f.b.select(none, I32(NAN), found)))
        direct = f.b.or_(self.frame.must_not_mix(), must_not_mix(f, f.read(most), f.read(least)))
        with self.rows(group) as (n, row):
            none = f.b.icmp_signed("==", f.load(self.found, n, BITS), I32(0))
            with f.when(f.b.or_(direct, none)):
                self.row(row, direct)

    @contextmanager
    def rows(self, group: Index) -> Iterator[tuple[Index, Index]]:
        """Part and row of each row of a group that is there."""
        f, k = self.f, self.k
        starts, there = part_starts(k.rows, k.levels), part_rows(k.rows, k.levels)
        with f.loop(0, self.parts) as n:
            start, count = (f.pick(values, f.value(n)) for values in (starts, there))
            with f.when(f.b.icmp_signed("<", f.value(group), f.value(count))):
                yield n, f.add(group, start)

    def magnitude(self, row: Index) -> ir.Value:
        """The largest of a row's elements."""
        f, k = self.f, self.k
        most, start = f.variable(nothing(k.lanes)), k.view.row_offset(f, row)
        with f.loop(0, k.view.depth, k.lanes) as c:
            at, there = f.add(start, k.view.depth_offset(f, c)), f.tail_mask(f.sub(k.view.depth, c), k.lanes)
            value = f.load(self.a, at, self.frame.dtype, k.lanes, there)
            f.change(most, greater(f, f.read(most), magnitudes(f, value, kept_lanes(k.lanes))))
        return greatest_lane(f, f.read(most))

    def row(self, row: Index, direct: ir.Value) -> None:
        """A row of the box's outputs: zero before bias and epilogue unless `direct`."""
        f, k, frame = self.f, self.k, self.frame
        each = frame.group // k.lanes
        together = min(MOST_BLOCKS_AT_A_TIME, each)
        first, last = (f.mul(end, each) for end in frame.groups())
        with f.loop(first, last, together) as block:
            column = f.mul(block, k.lanes)
            sums = Accumulators.create(f, [frame.zero] * together, 1, frame.dtype, k.lanes)
            with f.when(direct):
                self.products(sums, k.view.row_offset(f, row), column)
            for j in range(together):
                at = f.add(column, j * k.lanes)
                frame.put_sums(sums.value(j, 0), k.view.index(f, self.corner, row, at), frame.inside(at))

    def products(self, sums: Accumulators, start: Index, column: Index) -> None:
        """Adds up all of K for some blocks of columns of the row that begins at `start`."""
        f, k, dtype = self.f, self.k, self.frame.dtype
        unit = k.view.a.block if k.view.a.block > 1 else k.view.depth
        whole, tail = divmod(k.view.depth, unit)
        for begin, end, count in ((0, whole, unit), (whole, whole + bool(tail), tail)):
            with f.loop(begin, end) as c:
                first = f.mul(c, unit)
                at = f.address(self.a, f.add(start, k.view.depth_offset(f, first)), dtype)

                def weight(n: Index, j: int, first: Index = first) -> ir.Value:
                    return self.frame.weight(f.add(first, n), f.add(column, j * k.lanes))

                sums.multiply_add(at, [0], 1, count, weight)
