"""Expressions as C++ functors, which tests call on elements of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from brickrt.ops.cuda.printing.expressions import print_expr
from brickrt.ops.cuda.printing.types import compute_ctype
from brickrt.ops.expr import Expr


def print_functor(name: str, expr: Expr, dtypes: Sequence[np.dtype]) -> str:
    """A struct `name` whose call operator takes all operands, in the types of the computation, and gives the value."""
    operands = [f"x{k}" for k in range(len(dtypes))]
    statements, value = print_expr(expr, operands)
    arguments = ", ".join(f"{compute_ctype(d)} {x}" for d, x in zip(dtypes, operands))
    return (
        f"struct {name} {{\n"
        f"BRICK_DEVICE {compute_ctype(expr.dtype)} operator()({arguments}) const {{\n"
        f"{statements}\nreturn {value};\n}}\n}};\n"
    )
