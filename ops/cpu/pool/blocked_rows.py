"""Pooling rows of blocked tensors: a vector holds the channels of one pixel.

A strip of pixels combines each input column over the outer taps once; neighbouring windows then share columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.pool.row import PoolRow
from brickrt.ops.cpu.pool.window import Taps


class BlockedRow(PoolRow):
    """A row of a blocked tensor."""

    def emit(self, lo: Index, hi: Index) -> None:
        """In strips where windows share columns, else pixel by pixel."""
        f, b = self.f, self.f.b
        width = self.strip_width()
        if width == 0:
            self.pixels(lo, hi)
            return
        first, end = self.last.inner
        fits = b.icmp_signed(">=", f.value(f.sub(hi, lo)), f.value(width))
        with b.if_else(fits) as (wide, narrow):
            with wide, f.loop(lo, hi, width) as i:
                # The last strip moves back over pixels that are done already.
                x = f.minimum(i, f.sub(hi, width))
                inside = b.and_(
                    b.icmp_signed(">=", f.value(x), f.value(first)),
                    b.icmp_signed("<=", f.value(x), f.value(end - width)),
                )
                with b.if_else(inside) as (free, guarded):
                    with free:
                        self.rows_inside(lambda outer: self.strip(outer, x, width, False))
                    with guarded:
                        self.strip(self.outer, x, width, True)
            with narrow:
                self.pixels(lo, hi)

    def strip_width(self) -> int:
        """Pixels per strip; 0 where columns do not fit in registers, or a whole window may lie in the padding."""
        last = self.last
        reach = (last.kernel - 1) * last.dilation + 1
        widths = [w for w in range(1, 9) if w <= self.length and len(self.columns(w)) <= self.isa.registers // 2]
        overhang = (self.out.shape[-1] - 1) * last.stride - last.pad
        if not widths or last.pad >= reach or overhang >= last.extent:
            return 0
        strips = -(-self.length // widths[-1])
        return -(-self.length // strips)

    def columns(self, width: int) -> list[int]:
        """The inputs a strip reads, counted from the first tap of its first pixel."""
        last = self.last
        return sorted({p * last.stride + k * last.dilation for p in range(width) for k in range(last.kernel)})

    def strip(self, outer: Sequence[Taps], x: Index, width: int, guarded: bool) -> None:
        """Output pixels [x, x + width); `guarded` where columns may lie outside the tensor."""
        f, last = self.f, self.last
        start = f.sub(f.mul(x, last.stride), last.pad)
        inputs = {c: f.add(start, c) for c in self.columns(width)}
        reads = {c: f.minimum(f.maximum(i, 0), last.extent - 1) if guarded else i for c, i in inputs.items()}
        distances = [f.mul(at, self.source.strides[-1]) for at in reads.values()]
        loads = [partial(self.load_column, distance, self.out.block) for distance in distances]
        columns = dict(zip(inputs, self.columns_over(outer, self.out.block, loads), strict=True))
        if guarded:
            columns = {c: self._guard(value, inputs[c], reads[c]) for c, value in columns.items()}
        for p in range(width):
            at = f.add(x, p)
            total = self.math.combine_all([columns[p * last.stride + k * last.dilation] for k in range(last.kernel)])
            taps = last.taps(f, at) if guarded else last.inner_taps(f, at)
            self.store(self.math.finish(total, self.count([*outer, taps])), at, self.out.block)

    def _guard(self, value: ir.Value, column: Index, read: Index) -> ir.Value:
        """The identity where another column was read in place of one outside the tensor."""
        f = self.f
        inside = f.b.icmp_signed("==", f.value(column), f.value(read))
        return f.b.select(inside, value, self.math.identity(self.out.block))
