"""Sums of all elements so far, of images: of few positions one after the other, of many by doubling distances.

x          a    b      c        d
+ 1 back   a    a+b    b+c      c+d
+ 2 back   a    a+b    a+b+c    a+b+c+d

Where there are kernels for it, many positions with vectors side by side are one operator.
"""

from __future__ import annotations

import math

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import convert, elementwise, normal_axis, require_image, take, view
from brickrt.graph.builders.scalar import add, wide_type
from brickrt.graph.errors import Unsupported
from brickrt.ops.operators.move import Concat
from brickrt.ops.operators.reduce import RunningSum

MOST_SERIAL_POSITIONS = 32  # that are added one after the other
MOST_TABLE_POSITIONS = 2**14  # of which tables are made; more are added on the host
VECTOR = 16  # elements side by side that are worth adding as vectors


@builds("CumSum")
def cumulative_sum(b: Builder, node: OnnxNode) -> str:
    """float16 is added in float32. Sums may begin with nothing (`exclusive`), and at the end (`reverse`)."""
    x, kind = node.inputs[0], b.type(node.inputs[0])
    axis = normal_axis(int(b.scalar(node.inputs[1])), kind.rank)
    extent = kind.shape[axis]
    require_image(b, x)
    if extent > MOST_TABLE_POSITIONS:
        raise Unsupported(f"sums of {extent} elements: NumPy adds them one by one")
    step = -1 if node.attrs.get("reverse", 0) else 1
    found = convert(b, x, wide_type(kind.dtype))
    if node.attrs.get("exclusive", 0):
        found = _moved(b, found, axis, step)
    inner = math.prod(kind.shape[axis + 1 :])
    if extent <= MOST_SERIAL_POSITIONS:
        found = _one_by_one(b, found, axis, step)
    elif b.cpu_operators and inner >= VECTOR:
        rows = found if kind.shape[-1] >= VECTOR else view(b, found, (*kind.shape[: axis + 1], inner))
        found = view(b, b.emit(RunningSum(axis, step < 0), rows), kind.shape)
    else:
        found = _doubling(b, found, axis, step)
    return convert(b, found, kind.dtype)


def _moved(b: Builder, x: str, axis: int, by: int) -> str:
    """Elements so many positions further on along an axis, behind zeros."""
    extent = b.type(x).shape[axis]
    return take(b, x, {axis: [k - by if 0 <= k - by < extent else -1 for k in range(extent)]})


def _doubling(b: Builder, x: str, axis: int, step: int) -> str:
    distance = 1
    while distance < b.type(x).shape[axis]:
        x = elementwise(b, add, x, _moved(b, x, axis, step * distance))
        distance *= 2
    return x


def _one_by_one(b: Builder, x: str, axis: int, step: int) -> str:
    parts = [take(b, x, {axis: [k]}) for k in range(b.type(x).shape[axis])][::step]
    sums = parts[:1]
    for part in parts[1:]:
        sums.append(elementwise(b, add, sums[-1], part))
    return sums[0] if len(sums) == 1 else b.emit(Concat(axis), *sums[::step])
