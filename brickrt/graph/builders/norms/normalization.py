"""Normalizations: statistics as reductions, and one Map that applies them."""

from __future__ import annotations

import math
from collections.abc import Callable

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import (
    channel_view,
    convert,
    elementwise,
    normal_axes,
    normal_axis,
    optional,
    positive,
    reduce,
    require_float,
    take,
    uses,
    view,
)
from brickrt.graph.builders.scalar import F32, Unary, add, div, like, mul, reciprocal, sqrt, square, sub, wide_type
from brickrt.ops.expr import Expr, cast

Axes = tuple[int, ...]


@builds("LayerNormalization")
def layer_norm(b: Builder, node: OnnxNode) -> str | tuple[str, ...]:
    """Layer normalization over the trailing axes; mean and deviation are outputs where somebody reads them."""
    x = node.inputs[0]
    axes = _trailing(b, node)
    mean, spread = moments(b, x, axes, node.attrs.get("epsilon", 1e-5))
    y = standardized(b, x, mean, spread, node.inputs[1], optional(node, 2))
    if len(node.outputs) == 1:
        return y
    statistics = [convert(b, name, F32) if uses(b, node, k) else "" for k, name in ((1, mean), (2, spread))]
    return (y, *statistics)[: len(node.outputs)]


@builds("RMSNormalization")
def rms_norm(b: Builder, node: OnnxNode) -> str:
    """x / root mean square over the trailing axes."""
    x = node.inputs[0]
    require_float(b, x)
    dtype = b.type(x).dtype
    finish = _inverse_root(_count(b, x, _trailing(b, node)), node.attrs.get("epsilon", 1e-5))
    scale = reduce(b, "sum", _trailing(b, node), x, pre=square, post=finish, dtype=wide_type(dtype))
    return _affine(b, lambda x, r: mul(x, r), x, scale, weight=node.inputs[1])


@builds("InstanceNormalization")
def instance_norm(b: Builder, node: OnnxNode) -> str:
    """Normalization of each channel of each image."""
    x = node.inputs[0]
    rank = b.type(x).rank
    mean, spread = moments(b, x, tuple(range(2, rank)), node.attrs.get("epsilon", 1e-5))
    scale, bias = (channel_view(b, name, rank) for name in node.inputs[1:3])
    return standardized(b, x, mean, spread, scale, bias)


@builds("GroupNormalization")
def group_norm(b: Builder, node: OnnxNode) -> str:
    """Normalization of groups of channels. Scale and bias are per channel since opset 21, per group before."""
    x, groups = node.inputs[0], positive(node, "num_groups")
    require_float(b, x)
    if b.type(x).rank < 2:
        raise ValueError(f"'{x}' has no channels")
    mean, spread = _group_moments(b, x, groups, node.attrs.get("epsilon", 1e-5))
    shape = b.type(x).shape
    scale, bias = node.inputs[1:3]
    if node.version < 21:
        scale, bias = (_per_channel(b, name, shape[1] // groups) for name in (scale, bias))
    return standardized(b, x, mean, spread, *(channel_view(b, name, len(shape)) for name in (scale, bias)))


def _per_channel(b: Builder, name: str, size: int) -> str:
    """Values per group repeated for the `size` channels of each."""
    return take(b, name, {0: [k // size for k in range(b.type(name).size * size)]})


def _group_moments(b: Builder, x: str, groups: int, epsilon: float) -> tuple[str, str]:
    """Mean and inverse deviation per group, as [N, C, 1, …].

    Both passes sum the spatial dimensions of every channel first, so that the large tensor keeps its shape.
    """
    shape = b.type(x).shape
    spatial, channel = tuple(range(2, len(shape))), shape[1] // groups
    total = channel * math.prod(shape[2:])
    dtype = wide_type(b.type(x).dtype)

    def combine(name: str, post: Unary) -> str:
        grouped = reduce(b, "sum", (2,), view(b, name, (shape[0], groups, channel)), post=post)
        spread = take(b, grouped, {2: (0,) * channel})
        return view(b, spread, (*shape[:2], *(1,) * len(spatial)))

    mean = combine(reduce(b, "sum", spatial, x, dtype=dtype), lambda s: div(s, like(s, total)))
    squares = reduce(b, "sum", spatial, x, mean, pre=lambda x, m: square(sub(x, m)), dtype=dtype)
    return mean, combine(squares, _inverse_root(total, epsilon))


@builds("MeanVarianceNormalization")
def mean_variance_norm(b: Builder, node: OnnxNode) -> str:
    """(x - mean) / (deviation + 1e-9) over some axes."""
    x = node.inputs[0]
    require_float(b, x)
    axes = normal_axes(node.attrs.get("axes") or (0, 2, 3), b.type(x).rank)
    count, dtype = _count(b, x, axes), wide_type(b.type(x).dtype)
    mean = reduce(b, "sum", axes, x, post=lambda s: div(s, like(s, count)), dtype=dtype)

    def deviation(s: Expr) -> Expr:
        return add(sqrt(div(s, like(s, count))), like(s, 1e-9))

    spread = reduce(b, "sum", axes, x, mean, pre=lambda x, m: square(sub(x, m)), post=deviation, dtype=dtype)
    return _affine(b, lambda x, m, d: div(sub(x, m), d), x, mean, spread)


def moments(b: Builder, x: str, axes: Axes, epsilon: float) -> tuple[str, str]:
    """Mean and 1 / sqrt(variance + epsilon) over `axes`, which are kept; in float32 for float16."""
    require_float(b, x)
    count, dtype = _count(b, x, axes), wide_type(b.type(x).dtype)
    mean = reduce(b, "sum", axes, x, post=lambda s: div(s, like(s, count)), dtype=dtype)
    finish = _inverse_root(count, epsilon)
    return mean, reduce(b, "sum", axes, x, mean, pre=lambda x, m: square(sub(x, m)), post=finish, dtype=dtype)


def _inverse_root(count: int, epsilon: float) -> Unary:
    return lambda s: reciprocal(sqrt(add(div(s, like(s, count)), like(s, epsilon))))


def standardized(b: Builder, x: str, mean: str, spread: str, scale: str, bias: str = "") -> str:
    """(x - mean) * spread * scale + bias; all but x broadcast to it."""
    return _affine(b, lambda x, m, r: mul(sub(x, m), r), x, mean, spread, weight=scale, bias=bias)


def _affine(
    b: Builder, function: Callable[..., Expr], x: str, *statistics: str, weight: str = "", bias: str = ""
) -> str:
    """function(x, statistics…) * weight + bias in the type of the statistics, and then in that of x."""
    dtype, inner = b.type(x).dtype, wide_type(b.type(x).dtype)
    extra = [(name, op) for name, op in ((weight, mul), (bias, add)) if name]

    def compute(*args: Expr) -> Expr:
        value, *others = (cast(a, inner) for a in args)
        result = function(value, *others[: len(statistics)])
        for (_, op), operand in zip(extra, others[len(statistics) :], strict=True):
            result = op(result, operand)
        return cast(result, dtype)

    return elementwise(b, compute, x, *statistics, *(name for name, _ in extra))


def _trailing(b: Builder, node: OnnxNode) -> Axes:
    rank = b.type(node.inputs[0]).rank
    return tuple(range(normal_axis(node.attrs.get("axis", -1), rank), rank))


def _count(b: Builder, x: str, axes: Axes) -> int:
    return math.prod(b.type(x).shape[k] for k in axes)
