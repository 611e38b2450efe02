"""AffineGrid: where the pixels of an image lie in another one, of which all but a few numbers are constants.

The body by which ONNX defines it drops the batch together with a third axis, where it is 1.
"""

from __future__ import annotations

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import convert, elementwise, take, transpose, view, wide
from brickrt.graph.builders.scalar import add, mul
from brickrt.ops.expr import Expr


@builds("AffineGrid")
def affine_grid(b: Builder, node: OnnxNode) -> str:
    """theta [N, r, r + 1] times the place of each pixel, -1 to 1 along each of r axes, the last first, and 1:
    [N, *space, r]. All coordinates of an axis are computed side by side before they are put together."""
    kind = b.type(node.inputs[0])
    theta = wide(b, node.inputs[0])
    size = [int(v) for v in b.value(node.inputs[1]).reshape(-1)]
    rank = len(size) - 2
    if rank not in (2, 3) or kind.shape != (size[0], rank, rank + 1) or min(size[2:]) < 0:
        raise ValueError(f"theta {list(kind.shape)} does not suit a size {size}")
    factors = [view(b, take(b, theta, {2: [k]}), (size[0], rank, *(1,) * rank)) for k in range(rank + 1)]
    dtype, align = b.type(theta).dtype, bool(node.attrs.get("align_corners", 0))
    places = []
    for k, extent in enumerate(reversed(size[2:])):
        shape = [extent if axis == rank - 1 - k else 1 for axis in range(rank)]
        places.append(b.constant(_places(extent, align).astype(dtype).reshape(1, 1, *shape)))
    grid = convert(b, elementwise(b, _sum, *factors, *places), kind.dtype)
    return transpose(b, grid, (0, *range(2, 2 + rank), 1))


def _places(extent: int, align: bool) -> np.ndarray:
    """The middles of pixels from -1 to 1, or with `align` from the middle of the first to that of the last."""
    if not align:
        return (2 * np.arange(extent) + 1) / max(1, extent) - 1
    return np.linspace(-1, 1, extent) if extent > 1 else np.ones(extent)  # one pixel lies where ONNX Runtime has it


def _sum(*operands: Expr) -> Expr:
    """The sum of the products of factors and places, of which there is one less."""
    count = len(operands) // 2
    total = operands[count]
    for factor, place in zip(reversed(operands[:count]), reversed(operands[count + 1 :]), strict=True):
        total = add(total, mul(factor, place))
    return total
