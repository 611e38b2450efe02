"""Pools over windows and over all spatial dimensions."""

from __future__ import annotations

import math
from typing import Literal

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import convert, reduce, require_float, uses, wide
from brickrt.graph.builders.scalar import Unary, absolute, div, like, sqrt, square
from brickrt.graph.builders.spatial.pool_indices import max_indices
from brickrt.graph.builders.spatial.window import auto_pad, window_of
from brickrt.graph.errors import Unsupported
from brickrt.ops.expr import apply
from brickrt.ops.operators.pool import Pool
from brickrt.ops.types import Shape

Kind = Literal["max", "average", "lp"]


@builds("MaxPool")
def max_pool(b: Builder, node: OnnxNode) -> str | tuple[str, ...]:
    """Maxima of windows, and where they are."""
    pool = _pool(b, node, "max")
    if not uses(b, node, 1):
        y = b.emit(pool, node.inputs[0])
        return (y, "") if len(node.outputs) == 2 else y
    if node.attrs.get("storage_order", 0):
        raise Unsupported("the Indices of MaxPool, column by column")
    indices = max_indices(b, node.inputs[0], pool, pool.infer([b.type(node.inputs[0])]).shape[2:])
    return b.emit(pool, node.inputs[0]) if uses(b, node, 0) else "", indices


@builds("AveragePool")
def average_pool(b: Builder, node: OnnxNode) -> str:
    """Means of windows."""
    return _floating(b, node, "average")


@builds("LpPool")
def lp_pool(b: Builder, node: OnnxNode) -> str:
    """Lp norms of windows."""
    return _floating(b, node, "lp")


def _floating(b: Builder, node: OnnxNode, kind: Kind) -> str:
    return convert(b, b.emit(_pool(b, node, kind), wide(b, node.inputs[0])), b.type(node.inputs[0]).dtype)


def _pool(b: Builder, node: OnnxNode, kind: Kind) -> Pool:
    return pool_of(node, b.type(node.inputs[0]).shape[2:], kind)


def pool_of(node: OnnxNode, spatial: Shape, kind: Kind) -> Pool:
    """The operator that pools as a node says, over so many spatial extents."""
    w = window_of(node, spatial, tuple(int(k) for k in node.attrs["kernel_shape"]))
    # Automatic padding fixes the size of the output, so that there is nothing left to round up.
    ceil = bool(node.attrs.get("ceil_mode", 0)) and auto_pad(node) == "NOTSET"
    include_pad = bool(node.attrs.get("count_include_pad", 0))
    p = order_of(node)
    return Pool(kind, w.kernel, w.strides, w.dilations, w.pads, w.pads_end, ceil, include_pad, p)


@builds("GlobalMaxPool")
def global_max_pool(b: Builder, node: OnnxNode) -> str:
    """The maximum of each channel."""
    return reduce(b, "max", _spatial(b, node), node.inputs[0])


@builds("GlobalAveragePool")
def global_average_pool(b: Builder, node: OnnxNode) -> str:
    """The mean of each channel."""
    require_float(b, node.inputs[0])
    count = math.prod(b.type(node.inputs[0]).shape[2:])
    return reduce(b, "sum", _spatial(b, node), node.inputs[0], post=lambda s: div(s, like(s, count)))


@builds("GlobalLpPool")
def global_lp_pool(b: Builder, node: OnnxNode) -> str:
    """The Lp norm of each channel."""
    require_float(b, node.inputs[0])
    raised, rooted = norm(order_of(node))
    return reduce(b, "sum", _spatial(b, node), node.inputs[0], pre=raised, post=rooted)


def _spatial(b: Builder, node: OnnxNode) -> tuple[int, ...]:
    return tuple(range(2, b.type(node.inputs[0]).rank))


def order_of(node: OnnxNode) -> int:
    """The p of an Lp norm."""
    p = int(node.attrs.get("p", 2))
    if p < 1:
        raise ValueError(f"p is {p}: a norm has at least 1")
    return p


def norm(p: int) -> tuple[Unary, Unary]:
    """For an Lp norm, the function whose values are summed and the function that is applied to the sum."""
    if p == 1:
        return absolute, lambda s: s
    if p == 2:
        return square, sqrt
    return (
        lambda x: apply("pow", absolute(x), like(x, p)),
        lambda s: apply("pow", s, like(s, 1 / p)),
    )
