"""Pooling rows of plain tensors: vectors of adjacent pixels inside the row, single pixels at its ends."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.moves.spans import strips
from brickrt.ops.cpu.pool.row import PoolRow
from brickrt.ops.cpu.pool.window import Taps


class PlainRow(PoolRow):
    """A row of a plain tensor."""

    def emit(self, lo: Index, hi: Index) -> None:
        """Pixels at the left edge, vectors, pixels at the right edge."""
        f = self.f
        if self.out.strides[-1] != 1:
            self.pixels(lo, hi)
            return
        inner_lo, inner_hi = self.last.inner
        first = f.minimum(f.maximum(lo, inner_lo), hi)
        end = f.maximum(f.minimum(hi, inner_hi), first)
        self.pixels(lo, first)
        self.rows_inside(lambda outer: self._vectors(outer, first, end))
        self.pixels(end, hi)

    def _vectors(self, outer: Sequence[Taps], lo: Index, hi: Index) -> None:
        strips(self.f, lo, hi, self.isa.lanes, lambda x, count: self._vector(outer, x, count))

    def _vector(self, outer: Sequence[Taps], x: Index, count: Index) -> None:
        """`count` pixels whose windows lie inside the row."""
        f, lanes, last = self.f, self.isa.lanes, self.last
        if count != lanes:
            self.pixels(x, f.add(x, count))
            return
        taps = last.inner_taps(f, x)
        total = self.window(outer, taps, lanes, self._gather)
        self.store(self.math.finish(total, self.count([*outer, taps])), x, lanes)

    def _gather(self, distance: Index, lanes: int, offset: Index) -> ir.Value:
        apart = self.last.stride * self.source.strides[-1]
        return self.f.gather(self.src, self.f.add(offset, distance), apart, self.source.dtype, lanes)
