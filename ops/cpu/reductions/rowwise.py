"""Row-wise kernels: the sweeps of several reductions, and a last one that maps, over rows that stay in cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, kernel_for
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.operands.operand_access import operands_in_memory, pack_constant
from brickrt.ops.cpu.reductions.divisors import divisors, without_divisors
from brickrt.ops.cpu.reductions.row_steps import RowSteps
from brickrt.ops.cpu.reductions.rowwise_body import RowwiseBody
from brickrt.ops.cpu.reductions.rowwise_plan import RowPlan
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.ops.types import Boxes


def plans(op: Rowwise, ins: Sequence[Operand], out: Operand, whole: bool = True) -> list[RowPlan]:
    """One per step."""
    steps = [Reduce(s.combine, op.axes, True, s.pre, s.post) for s in op.steps]
    return [RowPlan(step, tuple(ins), out, whole) for step in steps]


@dataclass(frozen=True)
class RowwiseKernel(Kernel):
    """`shape_class` is that of `RowPlan.classify`."""

    op: Rowwise

    sized: ClassVar[bool] = True

    @classmethod
    def classify(
        cls, op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes, isa: Isa
    ) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """Boxes by whether they hold whole rows, and by the kept dimensions that join."""
        assert isinstance(op, Rowwise)
        return plans(op, ins, out)[0].classify(boxes)

    def opened_op(self, take: Callable[[int], Any]) -> tuple[Op, tuple[Any, ...]]:
        """See `Kernel`: what means divide by is looked up."""
        posts = without_divisors([step.post for step in self.op.steps])
        steps = (replace(step, post=post) for step, post in zip(self.op.steps, posts, strict=True))
        return replace(self.op, steps=tuple(steps)), self.decisions()

    def look_ups(self) -> Sequence[np.ndarray]:
        """See `Kernel`."""
        return [divisors([step.post for step in self.op.steps])]

    def opens_packed(self, i: int) -> bool:
        """See `Kernel`: where elements lie follows from the shape."""
        return True

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        """As the input's vectors read it."""
        return pack_constant(array, self.ins[0])

    @cached_property
    def plans(self) -> list[RowPlan]:
        """How each step walks its input."""
        ins = operands_in_memory(self.ins, self.packed, self.ins[0])
        return plans(self.op, ins, self.out, bool(self.shape_class[0]))

    def emit(self, f: FunctionEmitter) -> None:
        """See `RowwiseBody`."""
        RowwiseBody(RowSteps(f, self.op, self.plans, self.shape_class, self.lanes)).emit()


@kernel_for(Rowwise)
def choose(op: Op, ins: Sequence[Operand], out: Operand, isa: Isa) -> type[Kernel]:
    """Raises ValueError where input and output lie differently."""
    assert isinstance(op, Rowwise)
    plans(op, ins, out)[0].check()
    return RowwiseKernel
