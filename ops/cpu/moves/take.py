"""Take: slices, pads, repeats and gathers with constant indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir

from brickrt.ops.affine_tables import Affine, affine, affine_pieces, period
from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I64, Index, memory_type
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.moves.index_tables import INT64, LookUps, in_blocks
from brickrt.ops.cpu.moves.move_kernel import MoveKernel
from brickrt.ops.cpu.moves.spans import (
    CopyLoop,
    StridedMemory,
    fill_spans,
    lane_spans,
    raw,
    stored_ranges,
    stored_shape,
)
from brickrt.ops.cpu.moves.square_tiles import copy_spans
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.operators.move import Take

MOST_PIECES = 3  # of an axis that reflects or repeats its edges, each with code of its own
Pieces: TypeAlias = tuple[Affine, ...]


@dataclass(frozen=True)
class LookedUp:
    """An axis that is no arithmetic; `holes`: some entries are -1."""

    holes: bool


@dataclass(frozen=True)
class Repeated:
    """An axis that reads so many positions again and again."""

    period: int


AxisMap: TypeAlias = Pieces | LookedUp | Repeated


@dataclass(frozen=True)
class Lookup:
    """The table of such an axis, in memory."""

    table: ir.Value
    holes: bool


class TakeKernel(MoveKernel):
    """Plain or blocked. Axes that are arithmetic become strides, their borders fills; those of a few pieces, or of
    equal ones, are copied piece by piece; the rest is looked up. `decided` are `axis_maps`."""

    def decisions(self) -> tuple[AxisMap, ...]:
        """See `Kernel`."""
        return self.decided or tuple(axis_maps(self.op, self.out))

    @property
    def pieces(self) -> list[Pieces | None]:
        """Per axis its arithmetic, None where it is looked up, or repeated."""
        return [how if isinstance(how, tuple) else None for how in self.decisions()]

    def opened_op(self, take: Callable[[int], Any]) -> tuple[Op, tuple[Any, ...]]:
        """Its code needs none of the tables."""
        assert isinstance(self.op, Take)

        def opened(how: Affine, first: bool) -> Affine:
            return replace(how, start=take(how.start), lo=how.lo if first else take(how.lo), hi=take(how.hi))

        def opened_axis(axis: AxisMap) -> AxisMap:
            if isinstance(axis, LookedUp):
                return axis
            if isinstance(axis, Repeated):
                return Repeated(take(axis.period))
            return tuple(opened(piece, k == 0) for k, piece in enumerate(axis))

        axes = tuple(map(opened_axis, self.decisions()))
        return replace(self.op, tables=(None,) * len(axes)), axes

    def look_ups(self) -> Sequence[np.ndarray]:
        """The tables of axes that are no arithmetic."""
        assert isinstance(self.op, Take)
        axes = zip(self.op.tables, self.decisions(), strict=True)
        return [np.asarray(table, np.int64) for table, how in axes if isinstance(how, LookedUp)]

    def emit(self, f: FunctionEmitter) -> None:
        """Each turn of repeated axes, and of it each combination of pieces; borders are filled, then what is inside is
        copied."""
        axes, ranges = self.pieces, stored_ranges(f, self.out, self.shape_class)
        sizes = stored_shape(self.out)
        spans = [CopyLoop(*r, s, d, e) for r, s, d, e in zip(ranges, self.ins[0].strides, self.out.strides, sizes)]
        periods = {axis: how.period for axis, how in enumerate(self.decisions()) if isinstance(how, Repeated)}
        turns = [(f.div(spans[d].lo, n), f.div(f.add(spans[d].hi, n - 1), n)) for d, n in periods.items()]
        with f.loops(turns) as at:
            before: Index = 0
            for (axis, n), turn in zip(periods.items(), at, strict=True):
                span, start = spans[axis], f.mul(turn, n)
                before = f.add(before, f.mul(start, span.src))
                spans[axis] = replace(span, lo=f.maximum(span.lo, start), hi=f.minimum(span.hi, f.add(start, n)))
            for pieces in product(*(how or (None,) for how in axes)):
                self._emit_pieces(f, list(spans), pieces, before)

    def _emit_pieces(
        self, f: FunctionEmitter, spans: list[CopyLoop], axes: Sequence[Affine | None], before: Index
    ) -> None:
        """What one piece of every axis reads, None where an axis is looked up or repeated: this begins `before` the
        input."""
        lanes = lane_spans(self.out.block)
        offset: Index = 0
        for axis, how in enumerate(axes):
            if how is None:
                continue
            if len(self.pieces[axis] or ()) == 1:
                self._fill_border(f, spans + lanes, axis, how)
            lo, hi = inside(f, spans[axis], how)
            offset += how.start * spans[axis].src
            spans[axis] = replace(spans[axis], lo=lo, hi=hi, src=how.step * spans[axis].src)
        lookups = self._lookups(f)
        src, dst = self.memories(f)
        src = src.moved(f, f.sub(offset, before))
        self._emit_axes(f, spans + lanes, [*lookups, *[None] * len(lanes)], src, dst)

    def _lookups(self, f: FunctionEmitter) -> list[Lookup | None]:
        """The tables of axes that are looked up, None for others."""
        found = LookUps(f)
        return [
            Lookup(found.following(extent, INT64), how.holes) if isinstance(how, LookedUp) else None
            for how, extent in zip(self.decisions(), self.out.shape, strict=True)
        ]

    def _fill_border(self, f: FunctionEmitter, spans: Sequence[CopyLoop], axis: int, how: Affine) -> None:
        """Fills what lies before and behind the part of `axis` that reads."""
        span = spans[axis]
        parts = [(span.lo, f.minimum(span.hi, how.lo))] if how.lo > 0 else []
        parts += [(f.maximum(span.lo, how.hi), span.hi)] if how.hi < span.size else []
        for lo, hi in parts:
            with f.when(f.b.icmp_signed("<", f.value(lo), f.value(hi))):
                part = replace(span, lo=lo, hi=hi)
                self._fill(f, [*spans[:axis], part, *spans[axis + 1 :]], StridedMemory(f.pointer(0)))

    def _fill(self, f: FunctionEmitter, spans: Sequence[CopyLoop], dst: StridedMemory) -> None:
        assert isinstance(self.op, Take)
        kind = raw(self.out.dtype)
        bits = np.array(self.op.fill, self.out.dtype).view(kind)
        fill_spans(f, spans, dst, ir.Constant(memory_type(kind), int(bits)), kind, self.isa)

    def _emit_axes(
        self,
        f: FunctionEmitter,
        spans: Sequence[CopyLoop],
        lookups: Sequence[Lookup | None],
        src: StridedMemory,
        dst: StridedMemory,
    ) -> None:
        """Loops down to the last axis that is looked up; the axes inside it are a plain copy."""
        if not any(lookups):
            copy_spans(self.mover(f), spans, src, dst)
            return
        span, how = spans[0], lookups[0]
        with f.loop(span.lo, span.hi) as i:
            target = dst.moved(f, f.mul(i, span.dst))
            index: Index = i if how is None else f.load(how.table, i, INT64)
            if how is None or not how.holes:
                self._emit_axes(f, spans[1:], lookups[1:], src.moved(f, f.mul(index, span.src)), target)
                return
            with f.b.if_else(f.b.icmp_signed("<", index, I64(0))) as (hole, reads):
                with hole:
                    self._fill(f, spans[1:], target)
                with reads:
                    self._emit_axes(f, spans[1:], lookups[1:], src.moved(f, f.mul(index, span.src)), target)


def axis_maps(op: Op, out: Operand) -> list[AxisMap]:
    """Per axis its arithmetic, or that it is looked up; axis 1 of blocked tensors in blocks.

    Raises LookupError where channels of a blocked tensor would have to move between lanes.
    """
    assert isinstance(op, Take)
    axes = [_axis_map(table, extent) for table, extent in zip(op.tables, out.shape, strict=True)]
    if out.block > 1:
        whole = axes[1]
        pieces = whole if isinstance(whole, tuple) else ()
        channels = in_blocks(pieces[0], out.shape[1], out.block) if len(pieces) == 1 else None
        if not channels:
            raise LookupError(f"Take: axis 1 moves channels within blocks of {out.block}; reorder to plain first")
        axes[1] = (channels,)
    return axes


def _axis_map(table: Sequence[int] | None, extent: int) -> AxisMap:
    if whole := affine(table, extent):
        return (whole,)
    if repeated := period(table):
        return Repeated(repeated)
    pieces = affine_pieces(table or (), MOST_PIECES) or ()
    if not any(piece.step for piece in pieces):
        pieces = ()  # each element repeated, of few: looked up, as of many
    return pieces or LookedUp(min(table or (), default=0) < 0)


def inside(f: FunctionEmitter, span: CopyLoop, how: Affine) -> tuple[Index, Index]:
    """The part of the span's range that reads; constants stay constants."""
    lo = f.maximum(span.lo, how.lo) if how.lo > 0 else span.lo
    return lo, f.minimum(span.hi, how.hi) if how.hi < span.size else span.hi


@kernel_for(Take)
def choose_take(op: Take, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """Raises LookupError where layouts differ or channels would move between lanes."""
    if ins[0].block != out.block:
        raise LookupError("Take: the operands' layouts differ; reorder first")
    axis_maps(op, out)
    return TakeKernel
