"""Matrix products with batch dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from brickrt.ops.base import Op
from brickrt.ops.expr import Expr


@dataclass(frozen=True)
class MatMul(Op):
    """a [batch…, M, K] times b [batch…, K, N], ranks ≥ 2, batch dimensions broadcast.

    Then the bias [N] if `bias`, then the extra operands of the epilogue, which broadcast to the output; `Arg(0)` of the
    epilogue is the product with its bias, `Arg(k)` extra operand k-1.
    """

    name: ClassVar[str] = "MatMul"
    bias: bool = False
    epilogue: Expr | None = None
