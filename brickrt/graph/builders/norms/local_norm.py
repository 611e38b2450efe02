"""Normalizations by a norm: across neighbouring channels, and along one axis."""

from __future__ import annotations

import math

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import convert, elementwise, normal_axis, positive, reduce, require_float, view, wide
from brickrt.graph.builders.scalar import add, div, equal, like, mul, square, where, wide_type, widened
from brickrt.graph.builders.spatial.pooling import norm, order_of
from brickrt.ops.expr import Expr, apply, cast
from brickrt.ops.operators.interp import AxisTaps, Interp
from brickrt.ops.operators.matmul import MatMul

MOST_TAPS = 64
"""Neighbours that are added one by one."""


@builds("LRN")
def local_response_norm(b: Builder, node: OnnxNode) -> str:
    """x / (bias + alpha / size * (sum of squares of `size` channels around))^beta."""
    x = wide(b, node.inputs[0])
    size, alpha = positive(node, "size"), node.attrs.get("alpha", 1e-4)
    beta, bias = node.attrs.get("beta", 0.75), node.attrs.get("bias", 1.0)
    t = b.type(x)
    if t.rank < 2:
        raise ValueError(f"a tensor of rank {t.rank} has no channels")
    squares = elementwise(b, square, x)
    sums = _channel_sums(b, squares, size, alpha / size)
    y = elementwise(b, lambda x, s: mul(x, apply("pow", add(s, like(s, bias)), like(s, -beta))), x, sums)
    return convert(b, y, b.type(node.inputs[0]).dtype)


def _channel_sums(b: Builder, x: str, size: int, weight: float) -> str:
    """`weight` times the sum of `size` neighbouring channels: by taps where these are few, else by a matrix of the band
    of neighbours, so that the cost does not grow with `size`."""
    t = b.type(x)
    channels = t.shape[1]
    if size <= MOST_TAPS:
        return b.emit(Interp((None, _neighbours(channels, size, weight), *(None,) * (t.rank - 2))), x)
    b.check_constant((channels, channels), t.dtype)
    offset = np.arange(channels) - np.arange(channels)[:, None]
    band = np.where((offset >= -((size - 1) // 2)) & (offset <= size // 2), weight, 0).astype(t.dtype)
    rows = view(b, x, (t.shape[0], channels, math.prod(t.shape[2:])))
    return view(b, b.emit(MatMul(), b.constant(band), rows), t.shape)


def _neighbours(channels: int, size: int, weight: float) -> AxisTaps:
    """Each channel sums (size-1)//2 channels before it and size//2 after it; those outside weigh nothing."""
    offsets = range(-((size - 1) // 2), size // 2 + 1)
    rows = [[c + k for k in offsets] for c in range(channels)]
    inside = [[0 <= k < channels for k in row] for row in rows]
    return AxisTaps(
        tuple(tuple(min(max(k, 0), channels - 1) for k in row) for row in rows),
        tuple(tuple(weight if ok else 0.0 for ok in row) for row in inside),
    )


@builds("LpNormalization")
def lp_norm(b: Builder, node: OnnxNode) -> str:
    """x / (Lp norm along an axis); 0 where the norm is 0."""
    x = node.inputs[0]
    require_float(b, x)
    dtype = b.type(x).dtype
    raised, rooted = norm(order_of(node))
    axis = normal_axis(node.attrs.get("axis", -1), b.type(x).rank)
    length = reduce(b, "sum", (axis,), x, pre=raised, post=rooted, dtype=wide_type(dtype))

    def divide(x: Expr, n: Expr) -> Expr:
        return cast(where(equal(n, like(n, 0)), like(n, 0), div(widened(x), n)), dtype)

    return elementwise(b, divide, x, length)
