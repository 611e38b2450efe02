"""Positions of extreme elements, as reductions over an index that counts along the axis."""

from __future__ import annotations

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import Combine, convert, elementwise, normal_axis, reduce, view
from brickrt.graph.builders.scalar import either, equal, like, where
from brickrt.ops.expr import Expr, apply, cast, const

INT64 = np.dtype(np.int64)


@builds("ArgMax", "ArgMin")
def arg_extreme(b: Builder, node: OnnxNode) -> str:
    """The position of the greatest or least element along an axis."""
    axis = normal_axis(node.attrs.get("axis", 0), b.type(node.inputs[0]).rank)
    last = bool(node.attrs.get("select_last_index", 0))
    found = _position(b, node.inputs[0], axis, node.op_type == "ArgMax", last, bool(node.attrs.get("keepdims", 1)))
    b.bounds[b.resolve(found)] = b.type(node.inputs[0]).shape[axis]
    return found


@builds("Hardmax")
def hardmax(b: Builder, node: OnnxNode) -> str:
    """1 at the first greatest element along an axis, else 0. Before opset 13 all axes from `axis` on are one."""
    x, shape = node.inputs[0], b.type(node.inputs[0]).shape
    axis = normal_axis(node.attrs.get("axis", 1 if node.version < 13 else -1), len(shape))
    if node.version < 13:
        x, axis = view(b, x, (int(np.prod(shape[:axis])), int(np.prod(shape[axis:])))), 1
    first = _position(b, x, axis, True, False, True)
    dtype = b.type(x).dtype
    return view(b, elementwise(b, lambda k, i: cast(equal(k, i), dtype), counter(b, x, axis), first), shape)


@builds("OneHot")
def one_hot(b: Builder, node: OnnxNode) -> str:
    """Negative indices count from the end of the new axis; those outside it select nothing."""
    indices, values = node.inputs[0], node.inputs[2]
    depth = int(b.scalar(node.inputs[1]))
    shape = b.type(indices).shape
    axis = normal_axis(node.attrs.get("axis", -1), len(shape) + 1)
    position = convert(b, view(b, indices, (*shape[:axis], 1, *shape[axis:])), INT64)
    b.check_constant((depth,), INT64)
    positions = b.constant(np.arange(depth, dtype=np.int64).reshape(_along(axis, len(shape) + 1)))
    off, on = b.value(values).reshape(-1)[:2]
    dtype = b.type(values).dtype

    def choose(k: Expr, i: Expr) -> Expr:
        wrapped = where(apply("lt", i, like(i, 0)), apply("add", i, like(i, depth)), i)
        return where(equal(k, wrapped), const(on, dtype), const(off, dtype))

    return elementwise(b, choose, positions, position)


def _position(b: Builder, x: str, axis: int, greatest: bool, last: bool, keepdims: bool) -> str:
    """Index of the first (or last) extreme element along `axis`; a NaN is more extreme than anything."""
    count = b.type(x).shape[axis]
    extreme = reduce(b, "max" if greatest else "min", (axis,), x)
    nothing = -1 if last else count

    def candidate(value: Expr, best: Expr, index: Expr) -> Expr:
        hit = equal(value, best)
        if value.dtype.kind == "f":
            hit = either(hit, apply("isnan", value))
        return where(hit, index, like(index, nothing))

    operands = (x, extreme, counter(b, x, axis))
    combine: Combine = "max" if last else "min"
    return reduce(b, combine, (axis,), *operands, keepdims=keepdims, pre=candidate, dtype=INT64)


def counter(b: Builder, x: str, axis: int) -> str:
    """0, 1, … along `axis`, broadcasting to the tensor."""
    t = b.type(x)
    return b.constant(np.arange(t.shape[axis], dtype=np.int64).reshape(_along(axis, t.rank)))


def _along(axis: int, rank: int) -> tuple[int, ...]:
    return tuple(-1 if k == axis else 1 for k in range(rank))
