"""Reductions: rows with a single step, whose result is stored."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

from brickrt.ops.cuda.kernel import THREADS, Kernel, computes
from brickrt.ops.cuda.printing.functions import device_function
from brickrt.ops.cuda.reductions.row_traits import RowTraits
from brickrt.ops.cuda.reductions.rows import Sharing, choose_sharing, rows_of
from brickrt.ops.expr import Arg
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Step


class RowsKernel(Kernel):
    """Base of the kernels that rows.cuh runs on traits."""

    headers: ClassVar[tuple[str, ...]] = ("math.cuh", "vectors.cuh", "combine.cuh", "rows.cuh")

    @property
    @abstractmethod
    def traits(self) -> RowTraits:
        """What rows.cuh is told."""

    @property
    def shared(self) -> int:
        """Room for partial results of all threads or warps, then for the row, where the block keeps it."""
        traits = self.traits
        if traits.rows.across:
            widest = max((step.pre.dtype.itemsize for step in traits.steps), default=4)
            return THREADS * traits.rows.vector * max(4, widest)
        if traits.sharing.lanes:
            return 0
        return 256 + (traits.cache_bytes if traits.sharing.cached else 0)

    def emit(self, name: str) -> str:
        """The traits, and a function that hands them to the template."""
        call = f"brick::Rows<{name}_rows>::box(s, at, shared);"
        return self.traits.text(f"{name}_rows") + device_function(name, call)


@computes(Reduce)
class ReduceKernel(RowsKernel):
    """A reduction over some axes."""

    op: Reduce

    @cached_property
    def traits(self) -> RowTraits:
        """Rows along the reduced axes; the output has strides along the others only."""
        op, x = self.op, self.ins[0]
        place = {d: d if op.keepdims else n for n, d in enumerate(d for d in range(x.rank) if d not in op.axes)}
        box = self.largest or self.out.shape
        full = [box[place[d]] if d in place else e for d, e in enumerate(x.shape)]
        strides = tuple(self.out.strides[place[d]] if d in place and e != 1 else 0 for d, e in enumerate(x.shape))
        rows = rows_of(x.shape, op.axes, self.ins, strides, full)
        step = Step(op.combine, op.pre or Arg(x.dtype, 0), op.post)
        how = Sharing(1) if rows.across else choose_sharing(rows, 0, full)
        axes = [place[d] for d in rows.kept]
        return RowTraits(rows, how, self.ins, self.out, [step], None, [], axes)
