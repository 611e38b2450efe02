"""The loops of a row-wise kernel over the rows of its box.

How many rows go together depends on where the vectors lie. Lanes that are kept: one vector of rows, or several
(`_columns`). Lanes that are reduced: row by row (`_single`), or, where only channels in blocks are reduced, chunks of
as many pixels as L1 holds, whose lanes are combined together (`_chunks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llvmlite import ir

from brickrt.ops.cpu.arithmetic.expressions import effort
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.emit.vector_loops import vector_loops
from brickrt.ops.cpu.reductions.pixel_chunk import PixelChunk
from brickrt.ops.cpu.reductions.reduce_plan import MergedDims
from brickrt.ops.cpu.reductions.reduce_sweep import BUSY_COLUMNS, COLUMNS, Place, moved_to
from brickrt.ops.cpu.reductions.row_steps import RowSteps

CHUNK_BYTES = 2**14  # of pixels that are swept again and again: half of a small L1
CHUNK_VECTORS = 8  # most vectors of pixels in a chunk


class RowwiseBody:
    """Emits the rows of a box."""

    def __init__(self, steps: RowSteps) -> None:
        self.steps, self.f, self.plan = steps, steps.f, steps.plan

    @property
    def by_chunks(self) -> bool:
        """Whether rows are pixels whose channels are reduced, in blocks."""
        kept = self.steps.kept
        channels_only = self.plan.blocked and len(self.steps.reduced) == 1 and self.plan.lanes_reduced
        return channels_only and bool(kept) and kept[-1].dim > 1

    def emit(self) -> None:
        """One row, one vector of rows, or several at a time."""
        kept = self.steps.kept
        columns = not (self.plan.blocked or self.plan.lanes_reduced)
        along = kept[-1] if self.by_chunks or columns else None
        with self.steps.loops.places(kept if along is None else kept[:-1]) as place:
            if along is None:
                self._single(place)
            elif columns:
                self._columns(place, along)
            else:
                self._chunks(place, along)

    # ---- one row, or one vector of rows

    def _single(self, place: Place) -> None:
        steps, f = self.steps, self.f
        results: list[ir.Value] = []
        for number in range(len(steps.op.steps)):
            (value,) = steps.swept(number, [place], lambda _: results)
            if self.plan.lanes_reduced:
                scalar = steps.finish(number, steps.combine(number).lanes(f, value), 1)
                results.append(f.splat(scalar, steps.lanes))
            else:
                results.append(steps.finish(number, value, steps.lanes))
        steps.mapped([place], lambda _: results)

    # ---- lanes are rows of a plain tensor

    def _columns(self, place: Place, row: MergedDims) -> None:
        f, steps, (lo, hi) = self.f, self.steps, self.steps.loops.range(row)

        def body(at: Iterable[Index]) -> None:
            self._column_vectors([moved_to(place, row.dim, i) for i in at])

        def tail(left: ir.Value) -> None:
            self._column_vectors([moved_to(place, row.dim, f.sub(hi, left))], f.tail_mask(left, steps.lanes))

        vector_loops(f, lo, hi, steps.lanes, BUSY_COLUMNS if effort(steps.op.expr) > 4 else COLUMNS, body, tail)

    def _column_vectors(self, places: Sequence[Place], mask: ir.Value | None = None) -> None:
        steps = self.steps
        results: list[list[ir.Value]] = [[] for _ in places]
        for number in range(len(steps.op.steps)):
            values = steps.swept(number, places, lambda k: results[k], mask)
            for known, value in zip(results, values, strict=True):
                known.append(steps.finish(number, value, steps.lanes))
        steps.mapped(places, lambda k: results[k], mask)

    # ---- rows are the channels of pixels, in blocks

    def _chunks(self, place: Place, row: MergedDims) -> None:
        """Rows of at least a vector of pixels in chunks; the last one of each begins early enough to be full."""
        f, steps, (lo, hi) = self.f, self.steps, self.steps.loops.range(row)
        row_bytes = self.plan.domain.channel_blocks * steps.lanes * self.plan.out.dtype.itemsize
        vectors = int(max(1, min(CHUNK_VECTORS, CHUNK_BYTES // (row_bytes * steps.lanes))))
        chunk = PixelChunk(steps, place, row, vectors * steps.lanes)
        short = f.b.icmp_signed("<", f.value(f.sub(hi, lo)), f.value(steps.lanes))
        with f.b.if_else(short) as (few, many):
            with few, f.loop(lo, hi) as i:
                self._single(moved_to(place, row.dim, i))
            with many, f.loop(lo, hi, chunk.pixels) as i:
                chunk.emit(f.minimum(i, f.sub(hi, steps.lanes)), f.minimum(f.add(i, chunk.pixels), hi))
