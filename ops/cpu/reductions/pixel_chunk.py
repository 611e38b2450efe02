"""A chunk of pixels whose channels a row-wise operator reduces: as many as L1 holds."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from brickrt.ops.cpu.emit.llvm_types import Index, computed_type, register_type, vector
from brickrt.ops.cpu.reductions.reduce_plan import MergedDims
from brickrt.ops.cpu.reductions.reduce_sweep import Place, moved_to
from brickrt.ops.cpu.reductions.row_steps import RowSteps

PIXELS_AT_A_TIME = 4  # of a chunk that are mapped together, so that what they share is loaded once


class PixelChunk:
    """Pixels whose rows are reduced a vector of pixels at a time; what they give waits in a buffer per step."""

    def __init__(self, steps: RowSteps, place: Place, row: MergedDims, pixels: int) -> None:
        self.steps, self.f, self.outer, self.row, self.pixels = steps, steps.f, place, row, pixels
        kinds = [register_type(step.dtype) for step in steps.op.steps]
        self.dtypes = [computed_type(s.dtype) for s in steps.op.steps]
        self.buffers = [self.f.local(vector(kind, steps.lanes), count=pixels // steps.lanes) for kind in kinds]

    def emit(self, begin: Index, end: Index) -> None:
        """Pixels begin…end-1, at least a vector and at most `pixels`; the last vectors may overlap."""
        f, lanes = self.f, self.steps.lanes
        for number in range(len(self.buffers)):
            with f.loop(begin, end, lanes) as i:
                self._reduce(number, f.minimum(i, f.sub(end, lanes)), begin)
        with f.loop(begin, f.sub(end, PIXELS_AT_A_TIME - 1), PIXELS_AT_A_TIME) as i:
            self._map([f.add(i, k) for k in range(PIXELS_AT_A_TIME)], begin)
        with f.loop(f.sub(end, f.rem(f.sub(end, begin), PIXELS_AT_A_TIME)), end) as i:
            self._map([i], begin)

    def _reduce(self, number: int, first: Index, begin: Index) -> None:
        """One step of as many pixels as lanes."""
        f, steps = self.f, self.steps
        places = [self._at(f.add(first, k)) for k in range(steps.lanes)]
        values = steps.swept(number, places, lambda k: self._results(places[k], begin, number))
        value = steps.finish(number, steps.combine(number).across(f, values), steps.lanes)
        f.store(value, self.buffers[number], f.sub(first, begin), self.dtypes[number], steps.lanes)

    def _map(self, pixels: Sequence[Index], begin: Index) -> None:
        places = [self._at(i) for i in pixels]
        self.steps.mapped(places, lambda k: self._results(places[k], begin, len(self.buffers)))

    def _at(self, i: Index) -> Place:
        return moved_to(self.outer, self.row.dim, i)

    def _results(self, place: Place, begin: Index, count: int) -> list[ir.Value]:
        """What the first `count` steps gave for a pixel, in all lanes."""
        f, at = self.f, self.f.sub(place[self.row.dim], begin)
        return [f.splat(f.load(self.buffers[k], at, self.dtypes[k]), self.steps.lanes) for k in range(count)]
