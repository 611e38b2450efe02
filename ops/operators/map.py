"""Elementwise chains: one expression over operands that broadcast to the output (NumPy rules)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Op, Slab, crop
from brickrt.ops.definitions.expressions import evaluate_expr, round_to
from brickrt.ops.epilogue import check_args, count_applies
from brickrt.ops.expr import Apply, Arg, Expr
from brickrt.ops.regions import box_shape, operand_region
from brickrt.ops.types import Boxes, TensorType


@dataclass(frozen=True)
class Map(Op):
    """Output = expr(operands…), of the broadcast shape; `Arg(k)` is input k."""

    name: ClassVar[str] = "Map"
    expr: Expr

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """The broadcast of all inputs, used by the expression or not."""
        check_args(self.name, self.expr, [t.dtype for t in ins])
        try:
            shape = np.broadcast_shapes(*(t.shape for t in ins))
        except ValueError:
            raise ValueError(f"Map: shapes {', '.join(map(str, ins))} do not broadcast together") from None
        return TensorType(shape, self.expr.dtype)

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """The same box, but for dimensions that broadcast."""
        return operand_region(boxes, ins[i].shape)

    @property
    def widens(self) -> bool:
        """Whether it gives elements of float16 in float32, and does nothing else."""
        expr = self.expr
        if not isinstance(expr, Apply) or expr.fn != "cast" or not isinstance(expr.args[0], Arg):
            return False
        return (expr.args[0].dtype, expr.dtype) == (np.float16, np.float32)

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """The expression, rounded once."""
        shape = box_shape(box)
        if 0 in shape:
            return np.empty(shape, out.dtype)
        operands = [crop(s, operand_region(box, t.shape)) for s, t in zip(slabs, ins, strict=True)]
        if self.widens and len(operands) == 1:  # exact, and ten times as fast
            return operands[0].astype(out.dtype)
        return np.array(np.broadcast_to(round_to(evaluate_expr(self.expr, operands), out.dtype), shape))

    def flops(self, ins: Sequence[TensorType], out: TensorType) -> int:
        """Functions of the expression, per element."""
        return count_applies(self.expr) * out.size
