"""Norms and softmax as one operator: reductions over the same axes, and a Map of the inputs and what they give.

A row is the set of elements that one reduction combines. Kernels reduce a row once per step and then map it, while it
lies in cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from brickrt.ops.base import Op, Slab, crop
from brickrt.ops.definitions.expressions import compute_type, evaluate_expr, round_to
from brickrt.ops.epilogue import check_args, check_operands, count_applies
from brickrt.ops.expr import Expr
from brickrt.ops.operators.reduce import COMBINE
from brickrt.ops.regions import box_shape, operand_region, settle
from brickrt.ops.types import Boxes, Shape, TensorType


@dataclass(frozen=True)
class Step:
    """One reduction of a row: post(combine of pre).

    In `pre`, `Arg(k)` is input k of n and `Arg(n + j)` the result of step j; in `post`, `Arg(0)` is the combined value.
    """

    combine: Literal["sum", "prod", "max", "min"]
    pre: Expr
    post: Expr | None = None

    @property
    def dtype(self) -> np.dtype:
        """Type of the step's result."""
        return self.pre.dtype if self.post is None else self.post.dtype


@dataclass(frozen=True)
class Rowwise(Op):
    """expr(inputs…, results of the steps…), of the shape of input 0, to which the others broadcast.

    `kept`, if given, is an elementwise value of the output's type that is computed while the last step sweeps a row:
    there and in `expr` it is the operand after all results. `axes` are non-negative, ascending, and not empty.
    """

    name: ClassVar[str] = "Rowwise"
    axes: tuple[int, ...]
    steps: tuple[Step, ...]
    expr: Expr
    kept: Expr | None = None

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """Checks each expression against the operands that it may use."""
        x, *others = ins
        if not self.axes or list(self.axes) != sorted(set(self.axes)) or self.axes[0] < 0 or self.axes[-1] >= x.rank:
            raise ValueError(f"Rowwise: axes {list(self.axes)} of input {x}; give distinct ascending axes of it")
        check_operands(self.name, others, x.shape)
        dtypes = [t.dtype for t in ins]
        for number, step in enumerate(self.steps):
            last = number == len(self.steps) - 1
            check_args(self.name, step.pre, [*dtypes, *([step.dtype, *self._kept_type()] if last else [])])
            if step.post is not None:
                check_args(self.name, step.post, [step.pre.dtype])
            dtypes.append(step.dtype)
        if self.kept is not None:
            check_args(self.name, self.kept, dtypes[:-1])
            if self.kept.dtype != self.expr.dtype:
                raise ValueError(f"Rowwise: kept values are {self.kept.dtype.name}, the output {self.expr.dtype.name}")
        check_args(self.name, self.expr, [*dtypes, *self._kept_type()])
        return TensorType(x.shape, self.expr.dtype)

    def _kept_type(self) -> list[np.dtype]:
        return [] if self.kept is None else [self.kept.dtype]

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """Whole rows: the boxes, extended along the reduced axes."""
        return operand_region(self._rows(boxes, out), ins[i].shape)

    def _rows(self, boxes: Boxes, out: TensorType) -> Boxes:
        """The boxes, extended to all of every row that they hold part of; empty ones stay so."""
        lo, hi = boxes.lo.copy(order="K"), boxes.hi.copy(order="K")
        lo[:, self.axes], hi[:, self.axes] = 0, np.array(out.shape)[list(self.axes)]
        return settle(boxes, lo, hi, out.shape)

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """Steps in turn over whole rows, then the Map, cut to the box."""
        shape = box_shape(box)
        if 0 in shape:
            return np.empty(shape, out.dtype)
        rows = self._rows(box, out)
        values = [crop(s, operand_region(rows, t.shape)) for s, t in zip(slabs, ins, strict=True)]
        kept = None
        for number, step in enumerate(self.steps):
            if self.kept is not None and number == len(self.steps) - 1:
                kept = evaluate_expr(self.kept, values)
            hole = [] if kept is None else [np.zeros(()), kept]
            values.append(self._reduced(step, [*values, *hole], box_shape(rows)))
        values += [] if kept is None else [kept]
        whole = np.broadcast_to(evaluate_expr(self.expr, values), box_shape(rows))
        return np.array(round_to(whole[box.slices(0, tuple(rows.lo[0].tolist()))], out.dtype))

    def _reduced(self, step: Step, values: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
        """The result of a step over rows of `shape`, reduced axes kept."""
        terms = np.broadcast_to(evaluate_expr(step.pre, values), tuple(shape))
        with np.errstate(all="ignore"):
            combined = COMBINE[step.combine].reduce(
                terms, axis=self.axes, dtype=compute_type(step.pre.dtype), keepdims=True
            )
        return combined if step.post is None else evaluate_expr(step.post, [combined])

    def flops(self, ins: Sequence[TensorType], out: TensorType) -> int:
        """All sweeps and the Map, per element."""
        sweeps = sum(1 + count_applies(step.pre) for step in self.steps)
        return (sweeps + count_applies(self.kept) + count_applies(self.expr)) * out.size


def reduced_axes(op: Op) -> Shape:
    """The axes along which an operator reads all for a part of what it gives: statistics of whole rows are applied to
    each element. Kernels get them whole."""
    return op.axes if isinstance(op, Rowwise) else ()
