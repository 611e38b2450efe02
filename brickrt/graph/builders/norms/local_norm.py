"""Normalizations by a norm: across neighbouring channels, and along one axis."""

from __future__ import annotations

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import (
    convert,
    elementwise,
    normal_axis,
    positive,
    reduce,
    require_float,
    take,
    wide,
)
from brickrt.graph.builders.scalar import add, div, equal, like, mul, square, where, wide_type, widened
from brickrt.graph.builders.spatial.pooling import norm, order_of
from brickrt.graph.room import require_table_room
from brickrt.ops.expr import Expr, apply, cast
from brickrt.ops.operators.sampling.interp import AxisTaps, Interp

MOST_TAPS = 64
"""Neighbours that are added one by one."""
MOST_ENTRIES = 1 << 17
"""Taps of all channels, above which tables of them take longer than sums of windows."""


@builds("LRN")
def local_response_norm(b: Builder, node: OnnxNode) -> str:
    """x / (bias + alpha / size * (sum of squares of `size` channels around))^beta."""
    x = wide(b, node.inputs[0])
    size, alpha = positive(node, "size"), node.attrs.get("alpha", 1e-4)
    beta, bias = node.attrs.get("beta", 0.75), node.attrs.get("bias", 1.0)
    t = b.type(x)
    if t.rank < 2:
        raise ValueError(f"a tensor of rank {t.rank} has no channels")
    if not t.size:
        return convert(b, x, b.type(node.inputs[0]).dtype)
    squares = elementwise(b, square, x)
    sums = _channel_sums(b, squares, size, alpha / size)
    y = elementwise(b, lambda x, s: mul(x, apply("pow", add(s, like(s, bias)), like(s, -beta))), x, sums)
    return convert(b, y, b.type(node.inputs[0]).dtype)


def _channel_sums(b: Builder, x: str, size: int, weight: float) -> str:
    """`weight` times the sum of `size` neighbouring channels: by taps where there are few, else by sums of windows
    whose length doubles, so that neither time nor memory grows with `size`."""
    channels = b.type(x).shape[1]
    before, after = min((size - 1) // 2, channels - 1), min(size // 2, channels - 1)
    require_table_room(2 * channels * min(before + after + 1, MOST_TAPS), f"{b.what()} adds neighbouring channels")
    if before + after < MOST_TAPS and channels * (before + after + 1) <= MOST_ENTRIES:
        return b.emit(Interp((None, _neighbours(channels, before, after, weight), *(None,) * (b.type(x).rank - 2))), x)
    table = [c if 0 <= c < channels else -1 for c in range(-before, channels + after)]
    sums = _window_sums(b, take(b, x, {1: table}), before + after + 1)
    return elementwise(b, lambda s: mul(s, like(s, weight)), sums)


def _window_sums(b: Builder, x: str, size: int) -> str:
    """The sums of all windows of `size` channels within `x`, put together from windows of 1, 2, 4, … channels."""
    outputs = b.type(x).shape[1] - size + 1
    windows, length, total, covered = x, 1, "", 0
    while covered < size:
        if size & length:
            part = take(b, windows, {1: range(covered, covered + outputs)})
            total, covered = elementwise(b, add, total, part) if total else part, covered + length
        if covered < size:
            count = b.type(windows).shape[1] - length
            near, far = (take(b, windows, {1: range(at, at + count)}) for at in (0, length))
            windows, length = elementwise(b, add, near, far), 2 * length
    return total


def _neighbours(channels: int, before: int, after: int, weight: float) -> AxisTaps:
    """Each channel sums so many channels before and after it. A tap beyond the first or last channel falls on the
    channel itself, whose weight all that fall there share: a weight of zero would make infinities NaN."""
    rows = [[c + k if 0 <= c + k < channels else c for k in range(-before, after + 1)] for c in range(channels)]
    shared = ((weight / row.count(c) if k == c else weight for k in row) for c, row in enumerate(rows))
    return AxisTaps(rows, list(map(tuple, shared)))


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
