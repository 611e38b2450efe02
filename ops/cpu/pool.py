"""Pool: max, average and Lp windows over 1 to 3 spatial dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from math import prod

from llvmlite import ir

from brickrt.ops.cpu.emit import Fn, Index, register_type, vector
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.pool_math import PoolMath
from brickrt.ops.cpu.pool_window import AxisWindow, Taps, axis_windows
from brickrt.ops.cpu.transpose_spans import stored_ranges, strips
from brickrt.ops.pool import Pool

UNROLLED_TAPS = 25


class PoolKernel(Kernel):
    """Blocked: a vector holds the channels of one pixel. Plain: pixels of a row, one by one near its ends."""

    def emit(self, f: Fn) -> None:
        assert isinstance(self.op, Pool)
        rows = Rows.of(f, self.op, self.ins[0], self.out, self.isa)
        ranges = stored_ranges(f, self.out)
        with f.loops(ranges[:-1]) as at:
            rows.emit(at, *ranges[-1])


@dataclass(frozen=True)
class Rows:
    """Emits one row of the output; `src` and `dst` are base addresses, `lanes` the elements of a vector."""

    f: Fn
    math: PoolMath
    windows: list[AxisWindow]
    source: Operand
    out: Operand
    src: ir.Value
    dst: ir.Value
    lanes: int

    @staticmethod
    def of(f: Fn, op: Pool, source: Operand, out: Operand, isa: Isa) -> Rows:
        windows = axis_windows(op, source.shape[2:])
        lanes = out.block if out.block > 1 else isa.lanes if out.strides[-1] == 1 else 1
        return Rows(f, PoolMath(f, op, out.dtype), windows, source, out, f.pointer(1), f.pointer(0), lanes)

    @property
    def step(self) -> int:
        """Pixels in a vector."""
        return 1 if self.out.block > 1 else self.lanes

    def emit(self, at: Sequence[Index], lo: Index, hi: Index) -> None:
        """Output pixels [lo, hi) of the row at `at` [n, c, spatial but the last…]."""
        f, last = self.f, self.windows[-1]
        row = replace(
            self,
            src=f.address(self.src, f.dot(at[:2], self.source.strides[:2]), self.source.dtype),
            dst=f.address(self.dst, f.dot(at, self.out.strides[:-1]), self.out.dtype),
        )
        outer = [w.taps(f, o) for w, o in zip(self.windows[:-1], at[2:], strict=True)]
        first, end = last.inner
        first = f.minimum(f.maximum(lo, first), hi)
        end = f.maximum(f.minimum(hi, end), first)
        row.edge(outer, lo, first)
        row.interior(outer, at[2:], first, end)
        row.edge(outer, end, hi)

    def edge(self, outer: Sequence[Taps], lo: Index, hi: Index) -> None:
        with self.f.loop(lo, hi) as x:
            self.pixels([*outer, self.windows[-1].taps(self.f, x)], x, 1)

    def interior(self, outer: Sequence[Taps], at: Sequence[Index], lo: Index, hi: Index) -> None:
        """Pixels whose windows cross neither end of the row; rows inside the tensor have code of their own."""
        f = self.f
        if not outer or prod(w.kernel for w in self.windows) > UNROLLED_TAPS:
            self._run(outer, lo, hi)
            return
        inside = reduce(f.b.and_, [w.is_inner(f, o) for w, o in zip(self.windows, at, strict=False)])
        with f.b.if_else(inside) as (whole, cut):
            with whole:
                self._run([w.inner_taps(f, o) for w, o in zip(self.windows, at, strict=False)], lo, hi)
            with cut:
                self._run(outer, lo, hi)

    def _run(self, outer: Sequence[Taps], lo: Index, hi: Index) -> None:
        last = self.windows[-1]

        def several(x: Index, count: Index) -> None:
            if count == self.step:
                self.pixels([*outer, last.inner_taps(self.f, x)], x, self.step)
                return
            with self.f.loop(x, self.f.add(x, count)) as one:
                self.pixels([*outer, last.inner_taps(self.f, one)], one, 1)

        strips(self.f, lo, hi, self.step, several)

    def pixels(self, taps: Sequence[Taps], x: Index, count: int) -> None:
        """`count` output pixels from `x` on, whose windows have the same taps."""
        f, lanes = self.f, self.lanes if self.out.block > 1 else count
        load = self._loader(taps, lanes)
        looped = [t for k, t in enumerate(taps) if k < unrolled_from(taps)]
        unrolled = [t.fixed or range(0) for t in taps[len(looped) :]]

        def values(outer: Sequence[Index]) -> ir.Value:
            return self.math.combine_all([self.math.prepare(load([*outer, *inner])) for inner in product(*unrolled)])

        if looped:
            total = self._accumulate(looped, lanes, values)
        else:
            total = values([])
        counted: Index = 1
        for t in taps:
            counted = f.mul(counted, t.count)
        offset = f.mul(x, self.out.strides[-1])
        f.store(self.math.finish(total, counted), self.dst, offset, self.out.dtype, lanes)

    def _accumulate(self, looped: Sequence[Taps], lanes: int, values: Callable[..., ir.Value]) -> ir.Value:
        f, kind = self.f, vector(register_type(self.out.dtype), lanes)
        place = f.local(kind, self.math.identity(lanes))
        with f.loops([(t.lo, t.hi) for t in looped]) as outer:
            f.set(place, self.math.combine(f.get(place, kind), values(outer)))
        return f.get(place, kind)

    def _loader(self, taps: Sequence[Taps], lanes: int) -> Callable[[Sequence[Index]], ir.Value]:
        """Reads a tap of each pixel of the vector, given the tap's index per axis."""
        f, strides = self.f, self.source.strides[2:]
        start = f.dot([t.start for t in taps], strides)
        steps = [w.dilation * s for w, s in zip(self.windows, strides, strict=True)]
        apart = 1 if self.out.block > 1 else self.windows[-1].stride * strides[-1]
        return lambda tap: f.gather(self.src, f.add(start, f.dot(tap, steps)), apart, self.source.dtype, lanes)


def unrolled_from(taps: Sequence[Taps]) -> int:
    """The first of the trailing axes whose taps are known and few enough to write out."""
    first, size = len(taps), 1
    for axis in range(len(taps) - 1, -1, -1):
        fixed = taps[axis].fixed
        if fixed is None or size * len(fixed) > UNROLLED_TAPS:
            break
        first, size = axis, size * len(fixed)
    return first


@kernel_for(Pool)
def choose_pool(op: Pool, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    if ins[0].block != out.block:
        raise LookupError("Pool: the operands' layouts differ; reorder first")
    if out.dtype.kind == "b" and op.kind != "max":
        raise LookupError(f"Pool: {op.kind} of booleans is not defined")
    return PoolKernel
