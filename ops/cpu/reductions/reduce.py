"""Reductions: loops over outputs around a sweep over what they combine.

Every output combines its elements in an order that depends on the operator and the layouts alone, not on the box.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from llvmlite import ir

from brickrt.ops.base import Op
from brickrt.ops.cpu.arithmetic.combine import Combine
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index, memory_type, vector
from brickrt.ops.cpu.emit.vector_loops import vector_loops
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.operands.operand_access import operands_in_memory, pack_constant
from brickrt.ops.cpu.reductions.divisors import divisors, finished, without_divisors
from brickrt.ops.cpu.reductions.output_loops import OutputLoops
from brickrt.ops.cpu.reductions.reduce_plan import MergedDims, ReducePlan
from brickrt.ops.cpu.reductions.reduce_sweep import BUSY_COLUMNS, COLUMNS, Place, ReductionSweep, moved_to
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.types import Boxes


@dataclass(frozen=True)
class ReduceKernel(Kernel):
    """`shape_class`: the kept dimensions that join the ones before them (`ReducePlan.classify`)."""

    op: Reduce

    sized: ClassVar[bool] = True

    @classmethod
    def classify(
        cls, op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes, isa: Isa
    ) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """Boxes by the kept dimensions that join."""
        assert isinstance(op, Reduce)
        return ReducePlan(op, tuple(ins), out).classify(boxes)

    def opened_op(self, take: Callable[[int], Any]) -> tuple[Op, tuple[Any, ...]]:
        """See `Kernel`: what a mean divides by is looked up."""
        (post,) = without_divisors([self.op.post])
        return replace(self.op, post=post), self.decisions()

    def look_ups(self) -> Sequence[np.ndarray]:
        """See `Kernel`."""
        return [divisors([self.op.post])]

    def opens_packed(self, i: int) -> bool:
        """See `Kernel`: where elements lie follows from the shape."""
        return True

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        """As the input's vectors read it."""
        return pack_constant(array, self.ins[0])

    @cached_property
    def plan(self) -> ReducePlan:
        """How the input is walked."""
        ins = operands_in_memory(self.ins, self.packed, self.ins[0])
        return ReducePlan(self.op, tuple(ins), self.out)

    @property
    def combine(self) -> Combine:
        """How values are combined, and in which type."""
        return Combine(self.op.combine, self.ins[0].dtype if self.op.pre is None else self.op.pre.dtype)

    def emit(self, f: FunctionEmitter) -> None:
        """See `_Outputs`."""
        _Outputs(self, f).emit()


class _Outputs:
    """Loops over the outputs of a box, and their stores."""

    def __init__(self, kernel: ReduceKernel, f: FunctionEmitter) -> None:
        self.kernel, self.f, self.plan, self.lanes = kernel, f, kernel.plan, kernel.isa.lanes
        spans = self.plan.spans(kernel.shape_class)
        self.kept = [s for s in spans if not s.reduced]
        self.target = f.pointer(0)
        pointers = [f.pointer(1 + k) for k in range(len(kernel.ins))]
        reduced = [s for s in spans if s.reduced]
        self.bounds = [f.box(d) for d in range(len(kernel.out.shape))]
        self.loops = OutputLoops(f, self.plan, self.bounds, self.lanes)
        cut = self.plan.blocked and not self.plan.lanes_reduced and kernel.out.block == 1
        channels = self.bounds[self.plan.out_dims[1] or 0] if cut else None
        self.sweep = ReductionSweep(f, self.plan, kernel.combine, reduced, self.lanes, pointers, channels)

    def emit(self) -> None:
        """One output, or one vector, or a row of outputs at a time."""
        row = self.kept.pop() if self.kept and self._has_rows(self.kept[-1]) else None
        with self.loops.places(self.kept) as place:
            if row is None:
                self._single(place)
            elif self.plan.lanes_reduced:
                self._pixels(place, row)
            else:
                self._columns(place, row)

    def _has_rows(self, last: MergedDims) -> bool:
        """Whether several outputs along the last kept span are made at a time."""
        if self.plan.lanes_reduced:
            channels_only = len(self.sweep.spans) == 1 and self.plan.blocked
            return channels_only and last.dim > 1
        return not self.plan.blocked

    # ---- one output, or one block of channels

    def _single(self, place: Place) -> None:
        (value,) = self.sweep.run([place])
        if self.plan.lanes_reduced:
            scalar = self._finish(self.kernel.combine.lanes(self.f, value), 1)
            self.f.store(scalar, self.target, self._target(place), self.kernel.out.dtype)
            return
        value = self._finish(value, self.lanes)
        if self.plan.out_lanes_adjacent and self.kernel.out.block > 1:
            self.f.store(value, self.target, self._target(place), self.kernel.out.dtype, self.lanes)
            return
        to = self.plan.out_dims[1]
        assert to is not None
        lo, hi = (self.f.sub(bound, place[1]) for bound in self.bounds[to])
        stride = self.plan.out_access.strides[1]
        self._scatter(value, self._target(place), stride, self.f.maximum(lo, 0), self.f.minimum(hi, self.lanes))

    # ---- lanes are outputs of a plain domain

    def _columns(self, place: Place, row: MergedDims) -> None:
        f, (lo, hi) = self.f, self.loops.range(row)

        def body(at: Iterable[Index]) -> None:
            self._column_vectors([moved_to(place, row.dim, i) for i in at], row)

        def tail(left: ir.Value) -> None:
            self._column_vectors([moved_to(place, row.dim, f.sub(hi, left))], row, left)

        vector_loops(f, lo, hi, self.lanes, BUSY_COLUMNS if self.sweep.busy else COLUMNS, body, tail)

    def _column_vectors(self, places: Sequence[Place], row: MergedDims, left: ir.Value | None = None) -> None:
        f, dtype = self.f, self.kernel.out.dtype
        mask = None if left is None else f.tail_mask(left, self.lanes)
        for where, value in zip(places, self.sweep.run(places, mask), strict=True):
            value = self._finish(value, self.lanes)
            if self.plan.out_lanes_adjacent:
                f.store(value, self.target, self._target(where), dtype, self.lanes, mask)
            else:
                stride = self.plan.out_access.strides[row.dim]
                self._scatter(value, self._target(where), stride, 0, self.lanes if left is None else left)

    # ---- lanes are channels, and all that is reduced; outputs are pixels

    def _pixels(self, place: Place, row: MergedDims) -> None:
        """As many pixels as lanes at a time, so that their lanes are combined together."""
        f, (lo, hi) = self.f, self.loops.range(row)
        with f.loop(lo, f.sub(hi, self.lanes - 1), self.lanes) as i:
            places = [moved_to(place, row.dim, f.add(i, k)) for k in range(self.lanes)]
            value = self._finish(self.kernel.combine.across(f, self.sweep.run(places)), self.lanes)
            stride = self.plan.out_access.strides[row.dim]
            if stride == 1:
                f.store(value, self.target, self._target(places[0]), self.kernel.out.dtype, self.lanes)
            else:
                self._scatter(value, self._target(places[0]), stride, 0, self.lanes)
        with f.loop(f.sub(hi, f.rem(f.sub(hi, lo), self.lanes)), hi) as i:
            self._single(moved_to(place, row.dim, i))

    # ---- stores

    def _finish(self, value: ir.Value, lanes: int) -> ir.Value:
        return finished(self.f, self.kernel.op.post, value, lanes)

    def _target(self, place: Place) -> Index:
        return self.plan.out_access.offset(self.f, place)

    def _scatter(self, value: ir.Value, offset: Index, stride: int, lo: Index, hi: Index) -> None:
        """Stores lanes lo…hi-1, `stride` apart."""
        f, dtype = self.f, self.kernel.out.dtype
        buffer = f.local(vector(memory_type(dtype), self.lanes))
        f.store(value, buffer, 0, dtype, self.lanes)
        with f.loop(lo, hi) as k:
            f.store(f.load(buffer, k, dtype), self.target, f.add(offset, f.mul(k, stride)), dtype)


@kernel_for(Reduce)
def choose(op: Op, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """Raises ValueError for an output layout that a reduction cannot write."""
    assert isinstance(op, Reduce)
    ReducePlan(op, tuple(ins), out).check()
    return ReduceKernel
