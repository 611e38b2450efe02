"""How much of an operator a library is asked for: all of it, or its product, after which a kernel does the rest.

Engines of cuDNN that compute float32 without tensor cores take few epilogues, and none after transposed convolutions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeVar

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.conv import Conv, ConvTranspose
from brickrt.ops.expr import Arg, Expr, apply, arg, transform
from brickrt.ops.map import Map
from brickrt.ops.matmul import MatMul

Product = Conv | ConvTranspose | MatMul
P = TypeVar("P", bound=Conv | ConvTranspose | MatMul)
Share = Literal["all", "biased", "product"]
"""All; the product and its bias; the product alone."""


def shares(op: Product, dtype: np.dtype) -> tuple[Share, ...]:
    """Those that differ, the largest first; `dtype` is that of the product."""
    if op.epilogue is None:
        return ("all", "product") if op.bias else ("all",)
    if op.epilogue.dtype != dtype:
        return ("all",)
    return ("all", "biased", "product") if op.bias else ("all", "product")


def shared(op: P, share: Share) -> P:
    """The operator that the library is asked for, on the first of the operator's inputs."""
    return op if share == "all" else replace(op, epilogue=None, bias=op.bias and share == "biased")


def inputs_of(op: Op, share: Share, count: int) -> int:
    """How many of a product's inputs, which are `count`, the library reads; what is left reads those after them."""
    assert isinstance(op, Product)
    return {"all": count, "biased": op.main, "product": 2}[share]


def rest(op: Product, share: Share, dtype: np.dtype) -> Map:
    """What is left: operand 0 is the product, then come the inputs that the library does not read."""
    later = op.bias and share == "product"
    product: Expr = arg(0, dtype)
    if later:
        product = apply("add", product, arg(1, dtype))

    def moved(e: Expr) -> Expr:
        if not isinstance(e, Arg):
            return e
        return arg(e.index + later, e.dtype) if e.index else product

    return Map(product if op.epilogue is None else transform(op.epilogue, moved))
