"""Reductions along axes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import Combine, elementwise, integers, normal_axes, reduce, view
from brickrt.graph.builders.scalar import (
    F64,
    Unary,
    absolute,
    add,
    div,
    exp,
    in_float32,
    like,
    log,
    sqrt,
    square,
    sub,
    where,
    wide_type,
)
from brickrt.ops.expr import Expr, apply, cast


@dataclass(frozen=True)
class Reduction:
    """post(combine of pre(x)); `real`: integers are computed in float64 and truncated."""

    combine: Combine
    pre: Unary | None = None
    post: Unary | None = None
    real: bool = False


REDUCTIONS = {
    "ReduceSum": Reduction("sum"),
    "ReduceProd": Reduction("prod"),
    "ReduceMax": Reduction("max"),
    "ReduceMin": Reduction("min"),
    "ReduceL1": Reduction("sum", absolute),
    "ReduceL2": Reduction("sum", square, sqrt, real=True),
    "ReduceSumSquare": Reduction("sum", square),
    "ReduceLogSum": Reduction("sum", None, log, real=True),
}


@builds(*REDUCTIONS)
def reduction(b: Builder, node: OnnxNode) -> str:
    """One of REDUCTIONS along axes."""
    r, x = REDUCTIONS[node.op_type], node.inputs[0]
    pre, dtype = r.pre, b.type(x).dtype
    if dtype.kind == "b":
        pre = _as(np.dtype(np.uint8), pre)
    elif r.real and dtype.kind != "f":
        pre = _as(F64, pre)
    return reduce(b, r.combine, _axes(b, node), x, keepdims=_keepdims(node), pre=pre, post=r.post)


def _as(dtype: np.dtype, then: Unary | None) -> Unary:
    return lambda x: then(cast(x, dtype)) if then else cast(x, dtype)


@builds("ReduceMean")
def mean(b: Builder, node: OnnxNode) -> str:
    """The sum along axes, divided by the number of elements."""
    axes = _axes(b, node)
    count = math.prod(b.type(node.inputs[0]).shape[k] for k in axes)
    average = (lambda s: div(s, like(s, count))) if axes else None
    return reduce(b, "sum", axes, node.inputs[0], keepdims=_keepdims(node), post=average)


@builds("ReduceLogSumExp")
def log_sum_exp(b: Builder, node: OnnxNode) -> str:
    """log(sum(exp(x - m))) + m, where m is the greatest element, or 0 where that is infinite."""
    x, axes = node.inputs[0], _axes(b, node)
    dtype = b.type(x).dtype
    real = wide_type(dtype) if dtype.kind == "f" else F64
    top = reduce(b, "max", axes, x, post=_finite, dtype=real)
    rest = reduce(b, "sum", axes, x, top, pre=lambda x, m: exp(sub(cast(x, m.dtype), m)), post=log, dtype=real)
    total = elementwise(b, lambda r, m: cast(in_float32(add)(r, m), dtype), rest, top)
    if _keepdims(node):
        return total
    return view(b, total, [d for k, d in enumerate(b.type(x).shape) if k not in axes])


def _finite(x: Expr) -> Expr:
    return where(apply("isinf", x), like(x, 0), x) if x.dtype.kind == "f" else x


def _keepdims(node: OnnxNode) -> bool:
    return bool(node.attrs.get("keepdims", 1))


def _axes(b: Builder, node: OnnxNode) -> tuple[int, ...]:
    """The axes to reduce; none at all where the node asks for empty axes to do nothing."""
    rank = b.type(node.inputs[0]).rank
    axes = integers(b, node, 1, "axes")
    if not axes:
        return () if node.attrs.get("noop_with_empty_axes", 0) else tuple(range(rank))
    return normal_axes(axes, rank)
