"""Matrix products with batch dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Op, Slab, crop
from brickrt.ops.epilogue import count_applies, epilogue_type, finish
from brickrt.ops.expr import Expr
from brickrt.ops.operators.product_types import exact_type, product_type, wrapped_sums
from brickrt.ops.regions import box_shape, columns, operand_region, settle
from brickrt.ops.types import Boxes, TensorType, broadcast_region


@dataclass(frozen=True)
class MatMul(Op):
    """a [batch…, M, K] times b [batch…, K, N], ranks ≥ 2, batch dimensions broadcast.

    Then the bias [N] if `bias`, then the extra operands of the epilogue, which broadcast to the output; `Arg(0)` of the
    epilogue is the product with its bias, `Arg(k)` extra operand k-1. a may be uint8 and b int8: then bias and sums are
    int32 (`product_types.py`). Where `halves`, kernels may multiply 16 bits of each factor.
    """

    name: ClassVar[str] = "MatMul"
    factors: ClassVar[int] = 2
    """Inputs that the two factors are."""
    bias: bool = False
    epilogue: Expr | None = None
    halves: bool = False

    @property
    def main(self) -> int:
        """Inputs before the extra operands of the epilogue."""
        return self.factors + self.bias

    def infer(self, ins: Sequence[TensorType]) -> TensorType:
        """Batch dimensions broadcast; the bias has the type of the factors."""
        if len(ins) < 2 + self.bias:
            raise ValueError(f"MatMul: {len(ins)} inputs, expected at least {2 + self.bias}")
        a, b = ins[0], ins[1]
        if a.rank < 2 or b.rank < 2 or a.shape[-1] != b.shape[-2]:
            raise ValueError(f"MatMul: {a} times {b} is not a matrix product")
        sums = product_type(self.name, ins[: self.main])
        try:
            batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError:
            raise ValueError(f"MatMul: batch dimensions of {a} and {b} do not broadcast") from None
        if self.bias and ins[2].shape != (b.shape[-1],):
            raise ValueError(f"MatMul: bias {ins[2]}, expected [{b.shape[-1]}]")
        shape = (*batch, a.shape[-2], b.shape[-1])
        return epilogue_type(self.name, self.epilogue, ins[self.main :], sums, shape)

    def region(self, i: int, boxes: Boxes, ins: Sequence[TensorType], out: TensorType) -> Boxes:
        """Rows of a, columns of b, each with all of the depth."""
        shape = ins[i].shape
        if i == self.factors and self.bias:
            return settle(boxes, boxes.lo[:, -1:], boxes.hi[:, -1:], shape)
        if i >= self.factors:
            return operand_region(boxes, shape)
        batch = broadcast_region(Boxes(boxes.lo[:, :-2], boxes.hi[:, :-2]), shape[:-2])
        rows = (boxes.lo[:, -2], boxes.hi[:, -2])
        cols = (boxes.lo[:, -1], boxes.hi[:, -1])
        if i == 0:
            lo, hi = columns(len(boxes), batch.lo, rows[0], [0]), columns(len(boxes), batch.hi, rows[1], shape[-1:])
        else:
            lo, hi = columns(len(boxes), batch.lo, [0], cols[0]), columns(len(boxes), batch.hi, shape[-2:-1], cols[1])
        return settle(boxes, lo, hi, shape)

    def evaluate(self, box: Boxes, slabs: Sequence[Slab], ins: Sequence[TensorType], out: TensorType) -> np.ndarray:
        """Product, bias and epilogue, in float64."""
        shape = box_shape(box)
        if 0 in shape:
            return np.empty(shape, out.dtype)
        extra = 2 + self.bias
        dtype = exact_type(*ins[:2])
        a, b, *bias = (crop(slabs[i], self.region(i, box, ins, out)).astype(dtype) for i in range(extra))
        with np.errstate(all="ignore"):
            product = np.matmul(a, b)
            if bias:
                product = product + bias[0]
        product = wrapped_sums(product, *ins[:2])
        return finish([product], self.epilogue, box, slabs[extra:], ins[extra:], out.dtype)

    def flops(self, ins: Sequence[TensorType], out: TensorType) -> int:
        """Multiply-adds along the depth, then bias and epilogue."""
        return (2 * ins[0].shape[-1] + self.bias + count_applies(self.epilogue)) * out.size
