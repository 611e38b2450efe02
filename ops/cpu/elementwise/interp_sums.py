"""The weighted sums of Interp in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.arithmetic.expressions import convert
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I32, Index, computed_type, register_type, vector
from brickrt.ops.cpu.emit.sizes import Size
from brickrt.ops.cpu.moves.index_tables import INT64, LookUps
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.types import is_floating

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
UNROLLED_TAPS = 36


@dataclass(frozen=True)
class AxisTables:
    """Where the tables [taps][outputs] of an axis lie."""

    taps: int
    outputs: int | Size
    indices: ir.Value
    weights: ir.Value


@dataclass(frozen=True)
class Sums:
    """Emits outputs. Sums are float32 for float32, float16 and bfloat16, float64 for all other types."""

    f: FunctionEmitter
    source: Operand
    out: Operand
    tables: list[AxisTables | None]
    src: ir.Value
    dst: ir.Value
    known: dict[int, list[tuple[Index, ir.Value]]] = field(default_factory=dict)  # taps of axes, see `row`

    @staticmethod
    def of(f: FunctionEmitter, counts: Sequence[int | None], source: Operand, out: Operand) -> Sums:
        """Finds the tables of all axes that have taps: so many an output."""
        work, found = work_dtype(out.dtype), LookUps(f)
        tables = list[AxisTables | None]()
        for count, outputs in zip(counts, out.shape, strict=True):
            if count is None:
                tables.append(None)
                continue
            indices, weights = (found.following(count * outputs, dtype) for dtype in (INT64, work))
            tables.append(AxisTables(count, outputs, indices, weights))
        return Sums(f, source, out, tables, f.pointer(1), f.pointer(0))

    @property
    def work(self) -> np.dtype:
        """The type that sums have."""
        return work_dtype(self.out.dtype)

    def row(self, at: Sequence[Index], lanes: int) -> Sums:
        """The same for a row: all taps of outer axes, where it is at `at`, are loaded before."""
        outer = [(axis, table.taps) for axis, table in enumerate(self.tables[: len(at)]) if table]
        if prod(count for _, count in outer) > UNROLLED_TAPS:
            return self
        known = {axis: [self._tap(axis, tap, at, lanes) for tap in range(count)] for axis, count in outer}
        return replace(self, known=known)

    def emit_row(self, at: Sequence[Index], lanes: int, count: Index) -> None:
        """`count` outputs of a plain row from index `at` on, in a vector where there are `lanes`."""
        if count == lanes:
            self.emit(at, lanes)
            return
        alone = replace(self, known={})  # of weights in every lane
        with self.f.loop(0, count) as k:
            alone.emit([*at[:-1], self.f.add(at[-1], k)], 1)

    def emit(self, at: Sequence[Index], lanes: int) -> None:
        """`lanes` outputs from index `at` on: channels of a block, or neighbours along the innermost axis."""
        f = self.f
        kept = [(i, s) for i, s, t in zip(at, self.source.strides, self.tables, strict=True) if t is None]
        offset = f.dot([i for i, _ in kept], [s for _, s in kept])
        axes = [axis for axis, t in enumerate(self.tables) if t]
        sizes = [t.taps for t in self.tables if t]
        if prod(sizes) <= UNROLLED_TAPS:
            total = self._unrolled(axes, at, offset, lanes)
        else:
            total = self._looped(axes, sizes, at, offset, lanes)
        # A total of two bytes is rounded by the store.
        value = total if is_floating(self.out.dtype) else convert(f, total, self.work, self.out.dtype)
        f.store(value, self.dst, f.dot(at, self.out.strides), self.out.dtype, lanes)

    def _unrolled(self, axes: Sequence[int], at: Sequence[Index], offset: Index, lanes: int) -> ir.Value:
        """The sum over the taps of `axes`, the first outermost; `offset` is that of all other axes."""
        if not axes:
            return self._load(offset, lanes)
        axis, *inner = axes
        table = self.tables[axis]
        assert table
        if self._varies(axis, lanes):
            return self._across(table, at, offset, lanes)
        total = None
        for tap in range(table.taps):
            place, weight = self.known[axis][tap] if axis in self.known else self._tap(axis, tap, at, lanes)
            total = self._weigh(weight, self._unrolled(inner, at, self.f.add(offset, place), lanes), total)
        assert total is not None
        return total

    def _looped(
        self, axes: Sequence[int], sizes: Sequence[int], at: Sequence[Index], offset: Index, lanes: int
    ) -> ir.Value:
        f, kind = self.f, vector(register_type(self.work), lanes)
        varying = [axis for axis in axes if self._varies(axis, lanes)]
        looped = [axis for axis in axes if axis not in varying]
        place = f.local(kind, ir.Constant(kind, None if lanes > 1 else 0.0))
        with f.loops([(0, sizes[axes.index(axis)]) for axis in looped]) as taps:
            found = [self._tap(axis, tap, at, lanes) for axis, tap in zip(looped, taps, strict=True)]
            value = self._unrolled(varying, at, f.add(offset, *[o for o, _ in found]), lanes)
            for _, weight in found:
                value = f.b.fmul(weight, value)
            f.set(place, f.b.fadd(f.get(place, kind), value))
        return f.get(place, kind)

    def _varies(self, axis: int, lanes: int) -> bool:
        """Whether each lane has its own taps along `axis`."""
        return lanes > 1 and self.out.block == 1 and axis == len(self.tables) - 1

    def _tap(self, axis: int, tap: Index, at: Sequence[Index], lanes: int) -> tuple[Index, ir.Value]:
        """Offset and weight (in every lane) of one tap."""
        f, table = self.f, self.tables[axis]
        assert table
        entry = f.add(f.mul(tap, table.outputs), at[axis])
        index = f.load(table.indices, entry, INT64)
        return f.mul(index, self.source.strides[axis]), f.splat(f.load(table.weights, entry, self.work), lanes)

    def _across(self, table: AxisTables, at: Sequence[Index], offset: Index, lanes: int) -> ir.Value:
        """The sum over the taps of the innermost axis of a plain row, each lane at its own indices.

        Lane by lane: the machine's own gathers are many times slower on processors patched against their leaks.
        """
        f, stride = self.f, self.source.strides[-1]
        total = None
        for tap in range(table.taps):
            entry = f.add(tap * table.outputs, at[-1])
            value: ir.Value = ir.Constant(vector(register_type(self.work), lanes), ir.Undefined)
            for lane in range(lanes):
                index = f.load(table.indices, f.add(entry, lane), INT64)
                one = self._load(f.add(offset, f.mul(index, stride)), 1)
                value = f.b.insert_element(value, one, I32(lane))
            total = self._weigh(f.load(table.weights, entry, self.work, lanes), value, total)
        assert total is not None
        return total

    def _weigh(self, weight: ir.Value, value: ir.Value, total: ir.Value | None) -> ir.Value:
        return self.f.b.fmul(weight, value) if total is None else self.f.fma(weight, value, total)

    def _load(self, offset: Index, lanes: int) -> ir.Value:
        f, dtype = self.f, self.source.dtype
        stride = 1 if self.out.block > 1 else self.source.strides[-1]
        value = f.gather(self.src, offset, stride, dtype, lanes)
        return convert(f, value, computed_type(dtype), self.work)


def work_dtype(dtype: np.dtype) -> np.dtype:
    """The type of sums for outputs of `dtype`."""
    return FLOAT32 if is_floating(dtype) and dtype.itemsize <= 4 else FLOAT64
