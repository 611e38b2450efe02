"""The steps of a row-wise operator, at one or several places: reductions along rows, and the map over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from llvmlite import ir

from brickrt.ops.cpu.arithmetic.combine import Combine
from brickrt.ops.cpu.arithmetic.expressions import effort, unroll_of
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.emit.vector_loops import vector_loops
from brickrt.ops.cpu.reductions.divisors import finished
from brickrt.ops.cpu.reductions.output_loops import OutputLoops
from brickrt.ops.cpu.reductions.reduce_plan import MergedDims
from brickrt.ops.cpu.reductions.reduce_sweep import Place, ReductionSweep, all_moved_to
from brickrt.ops.cpu.reductions.rowwise_plan import RowPlan
from brickrt.ops.operators.rowwise import Rowwise

Results = Callable[[int], list[ir.Value]]  # of place number k: what the steps so far gave


class RowSteps:
    """`plans` has one plan per step; `shape_class` is that of `RowPlan.classify`."""

    def __init__(
        self, f: FunctionEmitter, op: Rowwise, plans: list[RowPlan], shape_class: Sequence[int], lanes: int
    ) -> None:
        self.f, self.op, self.plans, self.lanes = f, op, plans, lanes
        self.plan, self.whole = plans[0], bool(shape_class[0])
        spans = self.plan.spans(shape_class[1:])
        self.kept, self.reduced = ([s for s in spans if s.reduced is r] for r in (False, True))
        self.loops = OutputLoops(f, self.plan, [f.box(d) for d in range(len(self.plan.out.shape))], lanes)
        self.target = f.pointer(0)
        self.sources = [f.pointer(1 + k) for k in range(len(self.plan.ins))]

    def combine(self, number: int) -> Combine:
        """How step `number` combines."""
        step = self.op.steps[number]
        return Combine(step.combine, step.pre.dtype)

    def finish(self, number: int, value: ir.Value, lanes: int) -> ir.Value:
        """Step `number`'s result of what it has combined."""
        return finished(self.f, self.op.steps[number].post, value, lanes)

    def swept(
        self, number: int, places: Sequence[Place], results: Results, mask: ir.Value | None = None
    ) -> list[ir.Value]:
        """What a step combines to at each place; keeps what is to be kept if it is the last."""

        def more(k: int, place: Place, inner: ir.Value | None) -> list[ir.Value | None]:
            if self.op.kept is None or number < len(self.op.steps) - 1:
                return list(results(k))
            known = results(k)
            value = sweep.evaluate(self.op.kept, place, inner, known)
            if self.whole:
                self.store(value, place, inner)
            return [*known, None, value]

        sweep = self.sweep(number, more)
        return sweep.run(places, mask)

    def sweep(self, number: int, more=None) -> ReductionSweep:
        """The sweep of step `number`; `more` as in `ReductionSweep`."""
        plan = self.plans[number]
        return ReductionSweep(self.f, plan, self.combine(number), self.reduced, self.lanes, self.sources, None, more)

    # ---- the last sweep

    def mapped(self, places: Sequence[Place], results: Results, mask: ir.Value | None = None) -> None:
        """Computes and stores the outputs of the rows at `places`."""
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
        bounds = (0, span.extent) if self.whole else self.loops.range(span)
        with self.f.loop(*bounds) as i:
            self._level(level + 1, all_moved_to(places, span.dim, i), results, mask)

    def _lane_span(self, level: int, places: list[Place], results: Results, span: MergedDims) -> None:
        """A span that vectors lie along; a plain one has a masked end, a blocked one whole blocks."""
        f, step = self.f, self.lanes
        lo, hi = (0, span.extent) if self.whole else self.loops.bounds[span.dim]
        if self.plan.blocked:
            with f.loop(lo, hi, step) as i:
                self._level(level + 1, all_moved_to(places, span.dim, i), results, None)
            return

        def body(at: Iterable[Index]) -> None:
            for i in at:
                self._level(level + 1, all_moved_to(places, span.dim, i), results, None)

        def tail(left: ir.Value) -> None:
            mask = f.tail_mask(left, step)
            self._level(level + 1, all_moved_to(places, span.dim, f.sub(hi, left)), results, mask)

        vector_loops(
            f, lo, hi, step, unroll_of(effort(self.op.expr)) if level == len(self.reduced) - 1 else 1, body, tail
        )

    def value(self, place: Place, results: Sequence[ir.Value], mask: ir.Value | None) -> ir.Value:
        """A vector of outputs at a place."""
        sweep, kept = self.sweep(0), self.op.kept
        more: list[ir.Value | None] = list(results)
        if kept is not None and self.whole:
            more.append(self.f.load(self.target, self.offset(place), self.plan.out.dtype, self.lanes, mask))
        elif kept is not None:
            more.append(sweep.evaluate(kept, place, mask, results))
        return sweep.evaluate(self.op.expr, place, mask, more)

    def offset(self, place: Place) -> Index:
        """Where the output of a place lies."""
        return self.plan.out_access.offset(self.f, place)

    def store(self, value: ir.Value, place: Place, mask: ir.Value | None) -> None:
        """Writes a vector of outputs; blocks of channels are written whole."""
        mask = None if self.plan.blocked else mask
        self.f.store(value, self.target, self.offset(place), self.plan.out.dtype, self.lanes, mask)
