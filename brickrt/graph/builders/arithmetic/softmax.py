"""Softmax and its logarithm, shifted by the greatest element so that nothing overflows."""

from __future__ import annotations

import math

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import elementwise, normal_axis, reduce, require_float
from brickrt.graph.builders.scalar import div, equal, exp, less, like, log, sub, where, wide_type, widened
from brickrt.ops.expr import Expr, cast


@builds("Softmax")
def softmax(b: Builder, node: OnnxNode) -> str:
    """exp(x - max) divided by its sum."""
    return softmax_over(b, node.inputs[0], _axes(b, node))


def softmax_over(b: Builder, x: str, axes: tuple[int, ...]) -> str:
    """Softmax of a tensor over some axes."""
    require_float(b, x)
    dtype = b.type(x).dtype
    powers = elementwise(b, _power, x, reduce(b, "max", axes, x))
    return elementwise(b, lambda e, s: cast(div(e, s), dtype), powers, reduce(b, "sum", axes, powers))


def masked_softmax(b: Builder, x: str, axes: tuple[int, ...], masked: str) -> str:
    """Softmax of a floating-point tensor over some axes, 0 where `masked`, which is the same along these axes."""
    if not masked:
        return softmax_over(b, x, axes)

    def power(x: Expr, top: Expr, masked: Expr) -> Expr:
        value = _power(x, top)
        return where(masked, like(value, 0), value)

    def whole(total: Expr) -> Expr:
        return where(equal(total, like(total, 0)), like(total, 1), total)

    powers = elementwise(b, power, x, reduce(b, "max", axes, x), masked)
    return elementwise(b, div, powers, reduce(b, "sum", axes, powers, post=whole))


def _power(x: Expr, top: Expr) -> Expr:
    """exp(x - top), or 0 where that is subnormal: nothing beside the greatest one, which is 1. Masked attention has
    many such powers, and processors take a hundred times as long to multiply with subnormal numbers."""
    below = sub(widened(x), widened(top))
    least = math.log(np.finfo(below.dtype).tiny)
    return where(less(below, like(below, least)), like(below, 0), exp(below))


@builds("LogSoftmax")
def log_softmax(b: Builder, node: OnnxNode) -> str:
    """x - max - log(sum of exp(x - max))."""
    x, axes = node.inputs[0], _axes(b, node)
    require_float(b, x)
    dtype = b.type(x).dtype
    top = reduce(b, "max", axes, x)
    total = reduce(b, "sum", axes, x, top, pre=lambda x, m: exp(sub(x, m)), post=log, dtype=wide_type(dtype))

    def difference(x: Expr, m: Expr, t: Expr) -> Expr:
        return cast(sub(sub(widened(x), widened(m)), widened(t)), dtype)

    return elementwise(b, difference, x, top, total)


def _axes(b: Builder, node: OnnxNode) -> tuple[int, ...]:
    """One axis since opset 13, all from `axis` on before."""
    rank = b.type(node.inputs[0]).rank
    if node.version >= 13:
        return (normal_axis(node.attrs.get("axis", -1), rank),)
    return tuple(range(normal_axis(node.attrs.get("axis", 1), rank), rank))
