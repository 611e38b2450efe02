"""Where the maxima of MaxPool are: its second output, which networks that unpool read."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from brickrt.graph.builder import Builder
from brickrt.graph.builders.common import elementwise, require_float, take, wide
from brickrt.graph.builders.scalar import where
from brickrt.graph.errors import Unsupported
from brickrt.ops.expr import Expr, apply, const
from brickrt.ops.operators.pool import Pool
from brickrt.ops.types import Shape

INT64 = np.dtype(np.int64)
MOST_TAPS = 9
"""Elements of a window that are compared one after the other."""


def max_indices(b: Builder, x: str, pool: Pool, outputs: Shape) -> str:
    """Positions in the whole tensor of the maxima of `outputs` windows, the first of equal ones. Raises Unsupported for
    windows that reach beyond the tensor, and for large ones."""
    require_float(b, x)
    shape = b.type(x).shape
    spatial, taps = shape[2:], list(product(*map(range, pool.kernel)))
    spans = zip(outputs, pool.strides, pool.window.spans, strict=True)
    inside = all((n - 1) * stride + span <= extent for (n, stride, span), extent in zip(spans, spatial, strict=True))
    if any(pool.pads) or not inside or len(taps) > MOST_TAPS:
        raise Unsupported(f"the Indices of MaxPool over {len(taps)} elements, or padding")
    source, strides = wide(b, x), _strides(spatial)
    steps = [[o * d for o, d in zip(tap, pool.dilations, strict=True)] for tap in taps]
    values = [_tap(b, source, pool, step, outputs) for step in steps]
    offsets = [math.prod(spatial) * np.arange(shape[0] * shape[1]).reshape(*shape[:2], *(1,) * len(spatial))]
    for axis, (count, stride) in enumerate(zip(outputs, pool.strides, strict=True)):
        along = np.arange(count) * stride * strides[axis]
        offsets.append(along.reshape(-1, *(1,) * (len(spatial) - 1 - axis)))
    places = [sum(o * s for o, s in zip(step, strides, strict=True)) for step in steps]

    def position(*operands: Expr) -> Expr:
        corners, elements = operands[: len(offsets)], operands[len(offsets) :]
        best = elements[0]
        at: Expr = const(places[0], INT64)
        for place, element in zip(places[1:], elements[1:], strict=True):
            at = where(apply("gt", element, best), const(place, INT64), at)
            best = apply("max", best, element)
        for corner in corners:
            at = apply("add", at, corner)
        return at

    return elementwise(b, position, *(b.constant(o.astype(np.int64)) for o in offsets), *values)


def _tap(b: Builder, x: str, pool: Pool, step: list[int], outputs: Shape) -> str:
    """What one element of all windows reads."""
    tables = {
        2 + axis: range(step[axis], step[axis] + (count - 1) * stride + 1, stride)
        for axis, (count, stride) in enumerate(zip(outputs, pool.strides, strict=True))
    }
    return take(b, x, tables)


def _strides(spatial: Shape) -> list[int]:
    """How many elements apart neighbours along each axis lie."""
    return [math.prod(spatial[axis + 1 :]) for axis in range(len(spatial))]
