"""Gives operators other floating-point types than they were made for: their expressions cast operands and results.

Inside, expressions stay as they are: constants keep their value, and no step in between is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.expr import Arg, Expr, cast, transform
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.product import Product
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise, Step

Dtypes = Sequence[np.dtype]
OpT = TypeVar("OpT", bound=Op)


def retyped(op: Op, before: Dtypes, ins: Dtypes, out: np.dtype) -> Op:
    """The operator, made for inputs of the types `before`, for those of `ins`, with an output of type `out`.

    Operators without expressions are returned as they are: their output has the type of what they read.
    """
    if isinstance(op, Map):
        return Map(cast(reading(op.expr, ins), out))
    if isinstance(op, Reduce):
        return _reduce(op, before[0], ins, out)
    if isinstance(op, Rowwise):
        return _rowwise(op, ins, out)
    if isinstance(op, Product):
        return _product(op, before[0], ins, out)
    return op


def reading(expr: Expr, dtypes: Dtypes) -> Expr:
    """The expression with operand k of type `dtypes[k]`, cast to the type it had; there may be more operands."""

    def leaf(e: Expr) -> Expr:
        if isinstance(e, Arg) and e.index < len(dtypes):
            return cast(Arg(np.dtype(dtypes[e.index]), e.index), e.dtype)
        return e

    return transform(expr, leaf)


def expressions(op: Op) -> list[Expr]:
    """The expressions whose value is the output."""
    if isinstance(op, Map | Rowwise):
        return [op.expr]
    found = op.post if isinstance(op, Reduce) else getattr(op, "epilogue", None)
    return [] if found is None else [found]


def without_idle_steps(op: OpT, inputs: int) -> OpT:
    """An operator of so many inputs without expressions that give what they are given, which plans take for work."""
    if isinstance(op, Reduce):
        pre = None if isinstance(op.pre, Arg) and inputs == 1 else op.pre
        return replace(op, pre=pre, post=None if isinstance(op.post, Arg) else op.post)
    gated = isinstance(op, Conv) and op.gate_parts > 1
    if isinstance(op, Product) and isinstance(op.epilogue, Arg) and inputs == op.main and not gated:
        return replace(op, epilogue=None)
    return op


def _product(op: Product, before: np.dtype, ins: Dtypes, out: np.dtype) -> Op:
    if op.epilogue is None and ins[0] == out:
        return op
    parts = op.gate_parts if isinstance(op, Conv) else 1
    epilogue = op.epilogue or Arg(before, 0)
    operands = [*(ins[0] for _ in range(parts)), *ins[op.main :]]
    return replace(op, epilogue=cast(reading(epilogue, operands), out))


def _reduce(op: Reduce, before: np.dtype, ins: Dtypes, out: np.dtype) -> Reduce:
    """What is combined stays in the type it had."""
    pre = reading(op.pre or Arg(before, 0), ins)
    post = cast(op.post or Arg(pre.dtype, 0), out)
    return without_idle_steps(replace(op, pre=pre, post=post), len(ins))


def _rowwise(op: Rowwise, ins: Dtypes, out: np.dtype) -> Rowwise:
    """Results of steps stay in the type they had; what is kept has the output's."""
    results = [step.dtype for step in op.steps]
    kept = None if op.kept is None else cast(reading(op.kept, ins), out)
    every = [*ins, *results, *([] if kept is None else [out])]
    steps = tuple(Step(s.combine, reading(s.pre, every), s.post) for s in op.steps)
    return replace(op, steps=steps, expr=cast(reading(op.expr, every), out), kept=kept)
