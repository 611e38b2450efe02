"""Elementwise chains: one expression over operands that broadcast to the output (NumPy rules)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Op, Slab, crop
from brickrt.ops.definitions.expressions import evaluate_expr, round_to
from brickrt.ops.epilogue import check_args, count_applies
from brickrt.ops.expr import Apply, Arg, Expr
from brickrt.ops.regions import box_shape, operand_region
from brickrt.ops.types import Boxes, Shape, TensorType

PIECE = 1 << 15
"""Elements that are computed at a time: what is between steps then stays in cache."""


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
        result = np.empty(shape, out.dtype)
        for piece in _pieces(shape):
            parts = [operand[_of_operand(piece, operand.shape, len(shape))] for operand in operands]
            result[piece] = round_to(evaluate_expr(self.expr, parts), out.dtype)
        return result

    def flops(self, ins: Sequence[TensorType], out: TensorType) -> int:
        """Functions of the expression, per element."""
        return count_applies(self.expr) * out.size


def _pieces(shape: Shape) -> Iterator[tuple[slice, ...]]:
    """Pieces of up to `PIECE` elements, whole along the last axes, of a shape that has some."""
    if not shape:
        yield ()
        return
    axis = next(k for k in range(len(shape)) if math.prod(shape[k + 1 :]) <= PIECE)
    step = PIECE // math.prod(shape[axis + 1 :])
    for at in np.ndindex(shape[:axis]):
        before = tuple(slice(k, k + 1) for k in at)
        for first in range(0, shape[axis], step):
            yield (*before, slice(first, first + step))


def _of_operand(piece: tuple[slice, ...], shape: Shape, rank: int) -> tuple[slice, ...]:
    """What a piece of an output of this rank reads of an operand that broadcasts to it."""
    own = piece[rank - len(shape) :]
    return tuple(at if extent > 1 else slice(None) for at, extent in zip(own, shape, strict=False))
