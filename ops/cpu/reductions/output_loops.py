"""Loops over the outputs of a reduction's box, which reductions and row-wise operators share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.reductions.reduce_plan import MergedDims, ReducePlan
from brickrt.ops.cpu.reductions.reduce_sweep import Place


class OutputLoops:
    """`bounds` are begin and end of the box along each dimension of the output."""

    def __init__(self, f: FunctionEmitter, plan: ReducePlan, bounds: Sequence[tuple[Index, Index]], lanes: int) -> None:
        self.f, self.plan, self.bounds, self.lanes = f, plan, bounds, lanes

    @contextmanager
    def places(self, spans: Sequence[MergedDims]) -> Iterator[Place]:
        """Loops over `spans` of kept dimensions, where the box is not empty; other dimensions of the place are 0."""
        f = self.f
        some = f.value(1)
        for lo, hi in self.bounds:
            some = f.b.select(f.b.icmp_signed("<", f.value(lo), f.value(hi)), some, f.value(0))
        with f.when(f.b.icmp_signed("!=", some, f.value(0))), f.loops([self.range(s) for s in spans]) as at:
            place: Place = [0] * len(self.plan.domain.shape)
            for span, i in zip(spans, at, strict=True):
                place[span.dim] = f.mul(i, self.lanes) if self.plan.blocked and span.dim == 1 else i
            yield place

    def range(self, span: MergedDims) -> tuple[Index, Index]:
        """The span's part of the box; channels that are lanes count in blocks."""
        f = self.f
        to = self.plan.out_dims[span.dims[0]]
        assert to is not None
        lo, hi = self.bounds[to]
        if self.plan.blocked and span.dim == 1:
            return f.div(lo, self.lanes), f.div(f.add(hi, self.lanes - 1), self.lanes)
        inner = math.prod(self.plan.domain.shape[d] for d in span.dims[1:])
        return f.mul(lo, inner), f.mul(hi, inner)
