"""One row of a pooled tensor: what blocked and plain rows share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index, register_type, vector
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.pool.combine import PoolMath
from brickrt.ops.cpu.pool.window import AxisWindow, Taps, axis_windows
from brickrt.ops.operators.pool import Pool

UNROLLED_TAPS = 25
Load = Callable[[Index], ir.Value]  # of an element of a column, or of a vector of them, at an offset from `src`
ColumnLoad = Callable[[Index, int, Index], ir.Value]  # the same, of a column so far from the row's beginning, in lanes


@dataclass(frozen=True)
class PoolRow(ABC):
    """`src` is the address of input (n, c, 0, …), `dst` that of the row's output pixel 0.

    `outer` are the taps along all spatial axes but the row's own, `place` where they are: output indices. `length` is
    about how many pixels of a row are wanted at once.
    """

    f: FunctionEmitter
    math: PoolMath
    isa: Isa
    length: int
    windows: list[AxisWindow]
    source: Operand
    out: Operand
    src: ir.Value
    dst: ir.Value
    outer: list[Taps]
    place: Sequence[Index]

    @classmethod
    def at(
        cls,
        f: FunctionEmitter,
        op: Pool,
        source: Operand,
        out: Operand,
        isa: Isa,
        length: int,
        bases: Sequence[ir.Value],
        at: Sequence[Index],
    ) -> PoolRow:
        """The row at [n, c, spatial but the last…]; `bases` are the origins of input and output."""
        windows = axis_windows(op, source.shape[2:])
        src = f.address(bases[0], f.dot(at[:2], source.strides[:2]), source.dtype)
        dst = f.address(bases[1], f.dot(at, out.strides[:-1]), out.dtype)
        outer = [w.taps(f, o) for w, o in zip(windows[:-1], at[2:], strict=True)]
        return cls(f, PoolMath(f, op, out.dtype), isa, length, windows, source, out, src, dst, outer, at[2:])

    @abstractmethod
    def emit(self, lo: Index, hi: Index) -> None:
        """Output pixels [lo, hi)."""

    @property
    def last(self) -> AxisWindow:
        """The window along the row."""
        return self.windows[-1]

    @property
    def inner_outer(self) -> list[Taps]:
        """As `outer`, for a row whose windows lie inside the tensor along those axes."""
        return [w.inner_taps(self.f, o) for w, o in zip(self.windows, self.place, strict=False)]

    def rows_inside(self, emit: Callable[[list[Taps]], None]) -> None:
        """Emits twice: for rows inside the tensor, whose outer taps are known, and for those at its edges."""
        f, size = self.f, 1
        for w in self.windows:
            size *= w.kernel
        if not self.outer or size > UNROLLED_TAPS:
            emit(self.outer)
            return
        inside = reduce(f.b.and_, [w.is_inner(f, o) for w, o in zip(self.windows, self.place, strict=False)])
        with f.b.if_else(inside) as (whole, cut):
            with whole:
                emit(self.inner_outer)
            with cut:
                emit(self.outer)

    def columns_over(self, outer: Sequence[Taps], lanes: int, columns: Sequence[Load]) -> list[ir.Value]:
        """The values of columns over all outer taps, combined one after the other, from the first tap to the last.

        A window combines its columns in the same way. So the bits of a sum depend neither on where its pixel lies in
        what is computed at once, nor on whether its window is cut off by the tensor's edge.
        """
        f, math = self.f, self.math
        strides = [w.dilation * s for w, s in zip(self.windows, self.source.strides[2:], strict=True)][: len(outer)]
        first = f.dot([t.start for t in outer], self.source.strides[2 : 2 + len(outer)])
        looped = len(outer) - unrolled(outer)
        ranges = [t.fixed or range(0) for t in outer[looped:]]

        def values(load: Load, at: Sequence[Index]) -> list[ir.Value]:
            indices = [[*at, *inner] for inner in product(*ranges)]
            return [math.prepare(load(f.add(first, f.dot(index, strides)))) for index in indices]

        if not looped:
            return [math.combine_all(values(load, [])) for load in columns]
        kind = vector(register_type(self.out.dtype), lanes)
        places = [f.local(kind, math.identity(lanes)) for _ in columns]
        with f.loops([(t.lo, t.hi) for t in outer[:looped]]) as at:
            for place, load in zip(places, columns, strict=True):
                f.set(place, math.combine_all([f.get(place, kind), *values(load, at)]))
        return [f.get(place, kind) for place in places]

    def count(self, taps: Sequence[Taps]) -> Index:
        """What an average divides by."""
        counted: Index = 1
        for t in taps:
            counted = self.f.mul(counted, t.count)
        return counted

    def window(self, outer: Sequence[Taps], taps: Taps, lanes: int, load: ColumnLoad) -> ir.Value:
        """The values of a window combined, column by column, which `load` loads."""
        f, last = self.f, self.last
        step = self.source.strides[-1]

        def columns(at: Sequence[Index]) -> list[ir.Value]:
            distances = [f.mul(f.add(taps.start, f.mul(tap, last.dilation)), step) for tap in at]
            return self.columns_over(outer, lanes, [partial(load, distance, lanes) for distance in distances])

        if taps.fixed is not None and len(taps.fixed) <= UNROLLED_TAPS:
            return self.math.combine_all(columns(taps.fixed))
        kind = vector(register_type(self.out.dtype), lanes)
        place = f.local(kind, self.math.identity(lanes))
        with f.loop(taps.lo, taps.hi) as tap:
            f.set(place, self.math.combine_all([f.get(place, kind), *columns([tap])]))
        return f.get(place, kind)

    def pixel(self, x: Index) -> None:
        """One output pixel, wherever it is."""
        lanes, taps = self.out.block, self.last.taps(self.f, x)
        total = self.window(self.outer, taps, lanes, self.load_column)
        self.store(self.math.finish(total, self.count([*self.outer, taps])), x, lanes)

    def load_column(self, distance: Index, lanes: int, offset: Index) -> ir.Value:
        """What lies so far from the beginning of a row at an offset from `src`."""
        return self.f.load(self.src, self.f.add(offset, distance), self.source.dtype, lanes)

    def pixels(self, lo: Index, hi: Index) -> None:
        """Output pixels [lo, hi), one at a time."""
        with self.f.loop(lo, hi) as x:
            self.pixel(x)

    def store(self, value: ir.Value, x: Index, lanes: int) -> None:
        """Writes `lanes` values from output pixel `x` on."""
        self.f.store(value, self.dst, self.f.mul(x, self.out.strides[-1]), self.out.dtype, lanes)


def unrolled(taps: Sequence[Taps]) -> int:
    """How many of the trailing axes have taps that are known and few enough to write out."""
    size = 1
    for k, t in enumerate(reversed(taps)):
        if t.fixed is None or size * len(t.fixed) > UNROLLED_TAPS:
            return k
        size *= len(t.fixed)
    return len(taps)
