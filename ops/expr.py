"""Scalar expressions: the language of elementwise chains, epilogues and reductions.

An expression is a tree of frozen nodes; every node knows its dtype. `Arg(k)` is operand k at the current index. The
same tree is evaluated with NumPy in `ops/definitions`, emitted as LLVM IR in `ops/cpu` and as C++ in `ops/cuda`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

BOOL = np.dtype(bool)


@dataclass(frozen=True)
class Expr:
    """A node of an expression; `dtype` is the type of its value."""

    dtype: np.dtype


@dataclass(frozen=True)
class Arg(Expr):
    """Operand `index` at the current element."""

    index: int


@dataclass(frozen=True)
class Const(Expr):
    """A constant, exactly representable in the node's dtype."""

    value: float | int | bool


@dataclass(frozen=True)
class Apply(Expr):
    """`fn` applied to `args`; `dtype` is the type of the result."""

    fn: str
    args: tuple[Expr, ...]


# All functions by name are in ops/definitions/elementwise_functions.py, but `cast`, which converts to the node's dtype.
# They keep the type of their operands; comparisons and tests give bool.
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}  # as LLVM's builder and C++ write them
TEST = frozenset("isnan isinf isposinf isneginf".split())


def arg(index: int, dtype: np.dtype | str | type) -> Arg:
    """Operand `index`, which has elements of type `dtype`."""
    return Arg(np.dtype(dtype), index)


def const(value: float | int | bool, dtype: np.dtype | str | type) -> Const:
    """A constant, rounded to `dtype`."""
    return Const(np.dtype(dtype), np.dtype(dtype).type(value).item())


def cast(value: Expr, dtype: np.dtype | str | type) -> Expr:
    """`value` converted to `dtype`; the value itself if it has that type."""
    return value if value.dtype == np.dtype(dtype) else Apply(np.dtype(dtype), "cast", (value,))


def apply(fn: str, *args: Expr) -> Apply:
    """`fn` of `args`; the result's dtype follows from theirs. Raises ValueError for operands of different types."""
    operands = args[1:] if fn == "where" else args
    if any(a.dtype != operands[0].dtype for a in operands) and fn != "pow":
        raise ValueError(f"{fn}: operands of types {', '.join(a.dtype.name for a in operands)}")
    return Apply(BOOL if fn in COMPARE or fn in TEST else operands[0].dtype, fn, tuple(args))


def walk(expr: Expr) -> Iterator[Expr]:
    """All nodes, children first; shared subtrees as often as they occur."""
    if isinstance(expr, Apply):
        for a in expr.args:
            yield from walk(a)
    yield expr


def distinct(expr: Expr) -> list[Expr]:
    """All nodes, each once even where subtrees are shared."""
    found: dict[int, Expr] = {}
    left = [expr]
    while left:
        e = left.pop()
        if id(e) not in found:
            found[id(e)] = e
            left.extend(e.args if isinstance(e, Apply) else ())
    return list(found.values())


def used_operands(expr: Expr) -> list[int]:
    """The operands that an expression uses, ascending."""
    return sorted({e.index for e in distinct(expr) if isinstance(e, Arg)})


def transform(expr: Expr, leaf: Callable[[Expr], Expr]) -> Expr:
    """The expression with every leaf replaced by `leaf(it)`."""
    if isinstance(expr, Apply):
        return Apply(expr.dtype, expr.fn, tuple(transform(a, leaf) for a in expr.args))
    return leaf(expr)


def substitute(expr: Expr, operands: Mapping[int, Expr]) -> Expr:
    """The expression with `Arg(k)` replaced by `operands[k]` where that is given."""
    return transform(expr, lambda e: operands.get(e.index, e) if isinstance(e, Arg) else e)


def ordered(expr: Expr) -> Expr:
    """The expression with the two operands of a sum or a product in ascending order: the same value, written in one
    way, so that kernels that compute it share code."""
    if not isinstance(expr, Apply):
        return expr
    args = tuple(ordered(a) for a in expr.args)
    if expr.fn in ("add", "mul") and all(isinstance(a, Arg) for a in args):
        args = tuple(sorted(args, key=lambda a: a.index if isinstance(a, Arg) else 0))
    return Apply(expr.dtype, expr.fn, args)
