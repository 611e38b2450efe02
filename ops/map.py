"""Elementwise chains: one expression over operands that broadcast to the output (NumPy rules)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from brickrt.ops.base import Op
from brickrt.ops.expr import Expr


@dataclass(frozen=True)
class Map(Op):
    """Output = expr(operands…), of the broadcast shape; `Arg(k)` is input k."""

    name: ClassVar[str] = "Map"
    expr: Expr
