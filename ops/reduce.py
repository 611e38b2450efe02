"""Reductions over some axes, with an expression before and one after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from brickrt.ops.base import Op
from brickrt.ops.expr import Expr


@dataclass(frozen=True)
class Reduce(Op):
    """post(combine over `axes` of pre(inputs…)).

    Input 0 has the full shape; the other inputs of `pre` broadcast to it. `axes` are non-negative, ascending, and not
    empty. In `post`, `Arg(0)` is the combined value (post has no other operands). Without `pre` there is one input.
    """

    name: ClassVar[str] = "Reduce"
    combine: Literal["sum", "prod", "max", "min"]
    axes: tuple[int, ...]
    keepdims: bool
    pre: Expr | None = None
    post: Expr | None = None
