"""Row-wise kernels: the sweeps of several reductions, and a last one that maps, over rows that stay in cache.

How many rows go together depends on where the vectors lie. Lanes that are kept: one vector of rows, or several
(`_columns`). Lanes that are reduced: row by row (`_single`), or, where only channels in blocks are reduced, chunks of
as many pixels as L1 holds, whose lanes are combined together (`_chunks`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from llvmlite import ir

from brickrt.ops.base import Op
from brickrt.ops.cpu.elementwise.map import unroll_of
from brickrt.ops.cpu.emit.combine import Combine
from brickrt.ops.cpu.emit.expressions import effort, emit_expr
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index, register_type, vector
from brickrt.ops.cpu.emit.operand_access import constant_operand, pack_constant
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.reductions.reduce import BUSY_COLUMNS, COLUMNS
from brickrt.ops.cpu.reductions.reduce_plan import MergedDims
from brickrt.ops.cpu.reductions.reduce_sweep import Place, ReductionSweep, moved
from brickrt.ops.cpu.reductions.rowwise_plan import RowPlan
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.ops.types import Boxes

CHUNK_BYTES = 2**14  # of pixels that are swept again and again: half of a small L1
CHUNK_VECTORS = 8  # most vectors of pixels in a chunk
TOGETHER = 4  # pixels of a chunk that are mapped together, so that what they share is loaded once

Results = Callable[[int], list[ir.Value]]  # of place number k: what the steps so far gave


def plans(op: Rowwise, ins: Sequence[Operand], out: Operand, whole: bool = True) -> list[RowPlan]:
    """One per step."""
    steps = [Reduce(s.combine, op.axes, True, s.pre, s.post) for s in op.steps]
    return [RowPlan(step, tuple(ins), out, whole) for step in steps]


@dataclass(frozen=True)
class RowwiseKernel(Kernel):
    """`shape_class` is that of `RowPlan.classify`."""

    op: Rowwise

    @classmethod
    def classify(
        cls, op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes, isa: Isa
    ) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        assert isinstance(op, Rowwise)
        return plans(op, ins, out)[0].classify(boxes)

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        return pack_constant(array, self.ins[0])

    @cached_property
    def plans(self) -> list[RowPlan]:
        ins = [constant_operand(o.type, self.ins[0]) if p else o for o, p in zip(self.ins, self.packed, strict=True)]
        return plans(self.op, ins, self.out, bool(self.shape_class[0]))

    def emit(self, f: FunctionEmitter) -> None:
        _Rows(self, f).emit()


class _Rows:
    """Loops over the rows of a box."""

    def __init__(self, kernel: RowwiseKernel, f: FunctionEmitter) -> None:
        self.kernel, self.f, self.op, self.lanes = kernel, f, kernel.op, kernel.isa.lanes
        self.plan = kernel.plans[0]
        spans = self.plan.spans(kernel.shape_class[1:])
        self.kept, self.reduced = ([s for s in spans if s.reduced is r] for r in (False, True))
        self.bounds = [f.box(d) for d in range(len(kernel.out.shape))]
        self.target = f.pointer(0)
        self.sources = [f.pointer(1 + k) for k in range(len(kernel.ins))]

    @property
    def by_chunks(self) -> bool:
        """Whether rows are pixels whose channels are reduced, in blocks."""
        channels_only = self.plan.blocked and len(self.reduced) == 1 and self.plan.lanes_reduced
        return channels_only and bool(self.kept) and self.kept[-1].dim > 1

    def emit(self) -> None:
        f = self.f
        some = f.value(1)
        for lo, hi in self.bounds:
            some = f.b.select(f.b.icmp_signed("<", lo, hi), some, f.value(0))
        columns = not (self.plan.blocked or self.plan.lanes_reduced)
        along = self.kept[-1] if self.by_chunks or columns else None
        outer = self.kept if along is None else self.kept[:-1]
        with f.when(f.b.icmp_signed("!=", some, f.value(0))), f.loops([self.range(s) for s in outer]) as at:
            place = self.place(outer, at)
            if along is None:
                self._single(place)
            elif columns:
                self._columns(place, along)
            else:
                self._chunks(place, along)

    def range(self, span: MergedDims) -> tuple[Index, Index]:
        """The span's part of the box; of channels as lanes in blocks."""
        f, (lo, hi) = self.f, self.bounds[span.dims[0]]
        if self.plan.blocked and span.dim == 1:
            return f.div(lo, self.lanes), f.div(f.add(hi, self.lanes - 1), self.lanes)
        inner = math.prod(self.plan.domain.shape[d] for d in span.dims[1:])
        return f.mul(lo, inner), f.mul(hi, inner)

    def place(self, spans: Sequence[MergedDims], at: Sequence[Index]) -> Place:
        place: Place = [0] * len(self.bounds)
        for span, i in zip(spans, at, strict=True):
            place[span.dim] = self.f.mul(i, self.lanes) if self.plan.blocked and span.dim == 1 else i
        return place

    # ---- one row, or one vector of rows

    def _single(self, place: Place) -> None:
        results: list[ir.Value] = []
        for number in range(len(self.op.steps)):
            (value,) = self.swept(number, [place], lambda _: results)
            if self.plan.lanes_reduced:
                scalar = self.finish(number, self.combine(number).lanes(self.f, value), 1)
                results.append(self.f.splat(scalar, self.lanes))
            else:
                results.append(self.finish(number, value, self.lanes))
        self.mapped([place], lambda _: results)

    # ---- lanes are rows of a plain tensor

    def _columns(self, place: Place, row: MergedDims) -> None:
        f, (lo, hi) = self.f, self.range(row)
        columns = BUSY_COLUMNS if effort(self.op.expr) > 4 else COLUMNS
        wide = columns * self.lanes
        with f.loop(lo, f.sub(hi, wide - 1), wide) as i:
            self._column_vectors(place, row, [f.add(i, k * self.lanes) for k in range(columns)])
        done = f.sub(hi, f.rem(f.sub(hi, lo), wide))
        with f.loop(done, f.sub(hi, self.lanes - 1), self.lanes) as i:
            self._column_vectors(place, row, [i])
        left = f.value(f.rem(f.sub(hi, lo), self.lanes))
        with f.when(f.b.icmp_signed(">", left, f.value(0))):
            self._column_vectors(place, row, [f.sub(hi, left)], f.tail_mask(left, self.lanes))

    def _column_vectors(self, place: Place, row: MergedDims, at: Sequence[Index], mask: ir.Value | None = None) -> None:
        places = [[*place[: row.dim], i, *place[row.dim + 1 :]] for i in at]
        results: list[list[ir.Value]] = [[] for _ in places]
        for number in range(len(self.op.steps)):
            values = self.swept(number, places, lambda k: results[k], mask)
            for known, value in zip(results, values, strict=True):
                known.append(self.finish(number, value, self.lanes))
        self.mapped(places, lambda k: results[k], mask)

    # ---- rows are the channels of pixels, in blocks

    def _chunks(self, place: Place, row: MergedDims) -> None:
        """Rows of at least a vector of pixels in chunks; the last one of each begins early enough to be full."""
        f, (lo, hi) = self.f, self.range(row)
        row_bytes = self.plan.domain.channel_blocks * self.lanes * self.kernel.out.dtype.itemsize
        vectors = max(1, min(CHUNK_VECTORS, CHUNK_BYTES // (row_bytes * self.lanes)))
        chunk = _Chunk(self, place, row, vectors * self.lanes)
        short = f.b.icmp_signed("<", f.value(f.sub(hi, lo)), f.value(self.lanes))
        with f.b.if_else(short) as (few, many):
            with few, f.loop(lo, hi) as i:
                self._single([*place[: row.dim], i, *place[row.dim + 1 :]])
            with many, f.loop(lo, hi, chunk.pixels) as i:
                chunk.emit(f.minimum(i, f.sub(hi, self.lanes)), f.minimum(f.add(i, chunk.pixels), hi))

    # ---- steps

    def combine(self, number: int) -> Combine:
        step = self.op.steps[number]
        return Combine(step.combine, step.pre.dtype)

    def finish(self, number: int, value: ir.Value, lanes: int) -> ir.Value:
        post = self.op.steps[number].post
        return value if post is None else emit_expr(self.f, post, [value], lanes)

    def swept(
        self, number: int, places: Sequence[Place], results: Results, mask: ir.Value | None = None
    ) -> list[ir.Value]:
        """What a step combines to at each place; keeps what is to be kept if it is the last."""

        def more(k: int, place: Place, inner: ir.Value | None) -> list[ir.Value | None]:
            if self.op.kept is None or number < len(self.op.steps) - 1:
                return list(results(k))
            known = results(k)
            value = sweep.evaluate(self.op.kept, place, inner, known)
            if self.kernel.shape_class[0]:
                self.store(value, place, inner)
            return [*known, None, value]

        sweep = self.sweep(number, more)
        return sweep.run(places, mask)

    def sweep(self, number: int, more=None) -> ReductionSweep:
        plan = self.kernel.plans[number]
        return ReductionSweep(self.f, plan, self.combine(number), self.reduced, self.lanes, self.sources, None, more)

    # ---- the last sweep

    def mapped(self, places: Sequence[Place], results: Results, mask: ir.Value | None = None) -> None:
        self._level(0, list(places), results, mask)

    def _level(self, level: int, places: list[Place], results: Results, mask: ir.Value | None) -> None:
        if level == len(self.reduced):
            values = [self.value(place, results(k), mask) for k, place in enumerate(places)]
            for place, value in zip(places, values, strict=True):
                self.store(value, place, mask)
            return
        span = self.reduced[level]
        if span.dim == self.plan.lane_dim:
            self._lane_span(level, places, results, span)
            return
        bounds = (0, span.extent) if self.kernel.shape_class[0] else self.range(span)
        with self.f.loop(*bounds) as i:
            self._level(level + 1, moved(places, span.dim, i), results, mask)

    def _lane_span(self, level: int, places: list[Place], results: Results, span: MergedDims) -> None:
        """A span that vectors lie along; a plain one has a masked end, a blocked one whole blocks."""
        f, step = self.f, self.lanes
        lo, hi = (0, span.extent) if self.kernel.shape_class[0] else self.bounds[span.dim]
        if self.plan.blocked:
            with f.loop(lo, hi, step) as i:
                self._level(level + 1, moved(places, span.dim, i), results, None)
            return
        wide = step * (unroll_of(effort(self.op.expr)) if level == len(self.reduced) - 1 else 1)
        with f.loop(lo, f.sub(hi, wide - 1), wide) as i:
            for k in range(0, wide, step):
                self._level(level + 1, moved(places, span.dim, f.add(i, k)), results, None)
        done = f.sub(hi, f.rem(f.sub(hi, lo), wide))
        with f.loop(done, f.sub(hi, step - 1), step) as i:
            self._level(level + 1, moved(places, span.dim, i), results, None)
        left = f.value(f.rem(f.sub(hi, lo), step))
        with f.when(f.b.icmp_signed(">", left, f.value(0))):
            mask = f.tail_mask(left, step)
            self._level(level + 1, moved(places, span.dim, f.sub(hi, left)), results, mask)

    def value(self, place: Place, results: Sequence[ir.Value], mask: ir.Value | None) -> ir.Value:
        sweep, kept = self.sweep(0), self.op.kept
        more: list[ir.Value | None] = list(results)
        if kept is not None and self.kernel.shape_class[0]:
            more.append(self.f.load(self.target, self.offset(place), self.kernel.out.dtype, self.lanes, mask))
        elif kept is not None:
            more.append(sweep.evaluate(kept, place, mask, results))
        return sweep.evaluate(self.op.expr, place, mask, more)

    def offset(self, place: Place) -> Index:
        return self.plan.out_access.offset(self.f, place)

    def store(self, value: ir.Value, place: Place, mask: ir.Value | None) -> None:
        mask = None if self.plan.blocked else mask
        self.f.store(value, self.target, self.offset(place), self.kernel.out.dtype, self.lanes, mask)


class _Chunk:
    """Pixels whose rows are reduced a vector of pixels at a time; what they give waits in a buffer per step."""

    def __init__(self, rows: _Rows, place: Place, row: MergedDims, pixels: int) -> None:
        self.rows, self.f, self.outer, self.row, self.pixels = rows, rows.f, place, row, pixels
        kinds = [register_type(step.dtype) for step in rows.op.steps]
        self.dtypes = [np.dtype(np.float32) if s.dtype == np.float16 else s.dtype for s in rows.op.steps]
        self.buffers = [self.f.local(vector(kind, rows.lanes), count=pixels // rows.lanes) for kind in kinds]

    def emit(self, begin: Index, end: Index) -> None:
        """Pixels begin…end-1, at least a vector and at most `pixels`; the last vectors may overlap."""
        f, lanes = self.f, self.rows.lanes
        for number in range(len(self.buffers)):
            with f.loop(begin, end, lanes) as i:
                self._reduce(number, f.minimum(i, f.sub(end, lanes)), begin)
        with f.loop(begin, f.sub(end, TOGETHER - 1), TOGETHER) as i:
            self._map([f.add(i, k) for k in range(TOGETHER)], begin)
        with f.loop(f.sub(end, f.rem(f.sub(end, begin), TOGETHER)), end) as i:
            self._map([i], begin)

    def _reduce(self, number: int, first: Index, begin: Index) -> None:
        """One step of as many pixels as lanes."""
        f, rows = self.f, self.rows
        places = [self._at(f.add(first, k)) for k in range(rows.lanes)]
        values = rows.swept(number, places, lambda k: self._results(places[k], begin, number))
        value = rows.finish(number, rows.combine(number).across(f, values), rows.lanes)
        f.store(value, self.buffers[number], f.sub(first, begin), self.dtypes[number], rows.lanes)

    def _map(self, pixels: Sequence[Index], begin: Index) -> None:
        places = [self._at(i) for i in pixels]
        self.rows.mapped(places, lambda k: self._results(places[k], begin, len(self.buffers)))

    def _at(self, i: Index) -> Place:
        return [*self.outer[: self.row.dim], i, *self.outer[self.row.dim + 1 :]]

    def _results(self, place: Place, begin: Index, count: int) -> list[ir.Value]:
        """What the first `count` steps gave for a pixel, in all lanes."""
        f, at = self.f, self.f.sub(place[self.row.dim], begin)
        return [f.splat(f.load(self.buffers[k], at, self.dtypes[k]), self.rows.lanes) for k in range(count)]


@kernel_for(Rowwise)
def choose(op: Op, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    assert isinstance(op, Rowwise)
    plans(op, ins, out)[0].check()
    return RowwiseKernel
