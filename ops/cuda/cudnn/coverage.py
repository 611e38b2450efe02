"""How much of an operator cuDNN computes: all of it, or its product, after which a kernel does the rest.

Engines of cuDNN that compute float32 without tensor cores take few epilogues, and none after transposed convolutions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeVar

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.expr import Arg, Expr, apply, arg, transform
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.product import Product, parts_of

P = TypeVar("P", bound=Product)
Coverage = Literal["all", "biased", "product"]
"""What cuDNN computes: all of the operator; the product and its bias; the product alone."""


def in_place(op: Product, dtype: np.dtype) -> bool:
    """Whether the remainder of an operator can overwrite its product, which has elements of `dtype`."""
    return parts_of(op) == 1 and (op.epilogue is None or op.epilogue.dtype == dtype)


def coverages(op: Product) -> tuple[Coverage, ...]:
    """The coverages that differ for this operator, the largest first."""
    if op.epilogue is None:
        return ("all", "product") if op.bias else ("all",)
    return ("all", "biased", "product") if op.bias else ("all", "product")


def covered(op: P, coverage: Coverage) -> P:
    """The operator that cuDNN computes: on the first inputs of `op`, as many as `inputs_of` says."""
    if coverage == "all":
        return op
    alone = replace(op, epilogue=None, bias=op.bias and coverage == "biased")
    return replace(alone, gate_parts=1) if isinstance(alone, Conv) else alone


def inputs_of(op: Op, coverage: Coverage, count: int) -> int:
    """How many of the `count` inputs cuDNN reads; the remainder reads those after them."""
    assert isinstance(op, Product)
    return {"all": count, "biased": op.main, "product": 2}[coverage]


def remainder(op: Product, coverage: Coverage, dtype: np.dtype) -> Map:
    """The Map that computes the rest of `op` from its product, which has elements of `dtype`.

    Its first operands are the parts of the product, then come those of the bias unless cuDNN adds it, then the other
    inputs that cuDNN does not read.
    """
    parts = parts_of(op)
    later = parts if op.bias and coverage == "product" else 0
    products: list[Expr] = [arg(k, dtype) for k in range(parts)]
    if later:
        products = [apply("add", product, arg(parts + k, dtype)) for k, product in enumerate(products)]

    def moved(e: Expr) -> Expr:
        if not isinstance(e, Arg):
            return e
        return products[e.index] if e.index < parts else arg(e.index + later, e.dtype)

    return Map(products[0] if op.epilogue is None else transform(op.epilogue, moved))
