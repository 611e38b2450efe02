"""What builders of all families use: reading operands and attributes, and emitting common operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from brickrt.graph.builder import KERNEL_TYPES, Builder, OnnxNode
from brickrt.graph.builders.scalar import FLOATS, Unary, wide_type, widened
from brickrt.graph.errors import Unsupported
from brickrt.ops.expr import Expr, arg, cast, const
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import Take, Transpose, View
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.types import Shape

Combine = Literal["sum", "prod", "max", "min"]

IMAGE_ELEMENTS = 2**14  # that are worth several kernels


def optional(node: OnnxNode, index: int) -> str:
    """The name of an input, '' where the node omits it."""
    return node.inputs[index] if index < len(node.inputs) else ""


def positive(node: OnnxNode, attribute: str) -> int:
    """An integer attribute that must be at least 1. Raises ValueError where it is not, or not there."""
    value = int(node.attrs.get(attribute, 0))
    if value < 1:
        raise ValueError(f"{attribute} {value} must be at least 1")
    return value


def uses(b: Builder, node: OnnxNode, index: int) -> bool:
    """Whether anybody reads this output of the node."""
    return index < len(node.outputs) and bool(node.outputs[index]) and b.used(node.outputs[index])


def integers(b: Builder, node: OnnxNode, index: int, attribute: str) -> list[int] | None:
    """Integers that newer versions take as an input and older ones as an attribute; None where the node has neither."""
    name = optional(node, index)
    if name:
        return [int(v) for v in b.value(name).reshape(-1)]
    values = node.attrs.get(attribute)
    return None if values is None else [int(v) for v in values]


def normal_axis(axis: int, rank: int) -> int:
    """`axis` counted from the front. Raises ValueError where there is no such axis."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is outside a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def normal_axes(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front, ascending, each once."""
    return tuple(sorted({normal_axis(axis, rank) for axis in axes}))


def require_float(b: Builder, *names: str) -> None:
    """Raises Unsupported for an operand that is not float16, float32 or float64."""
    for name in names:
        if b.type(name).dtype not in FLOATS:
            raise Unsupported(f"elements of type {b.type(name).dtype.name}")


def require_image(b: Builder, name: str) -> None:
    """Raises Unsupported for a tensor so small that one call of NumPy takes less time than several kernels."""
    if b.type(name).size < IMAGE_ELEMENTS:
        raise Unsupported(f"{b.type(name).size} elements are few: NumPy takes one call for them")


def convert(b: Builder, name: str, dtype: np.dtype) -> str:
    """The tensor with elements of another type. Raises Unsupported where no kernel casts to it."""
    source = b.type(name).dtype
    if source == dtype:
        return name
    if not {source, dtype} <= KERNEL_TYPES:
        raise Unsupported(f"a cast from {source.name} to {dtype.name}")
    return b.emit(Map(cast(arg(0, source), dtype)), name, hint="cast")


def wide(b: Builder, name: str) -> str:
    """The tensor in float32 if it is float16. Raises Unsupported for anything but floating point."""
    require_float(b, name)
    return convert(b, name, wide_type(b.type(name).dtype))


def view(b: Builder, name: str, shape: Sequence[int]) -> str:
    """The tensor under another shape."""
    target = tuple(int(d) for d in shape)
    if b.type(name).shape == target:
        return name
    known = b.known(name)
    return b.emit(View(target), name) if known is None else b.constant(known.reshape(target))


def transpose(b: Builder, name: str, perm: Sequence[int]) -> str:
    """The tensor with its axes in another order."""
    order = tuple(int(k) for k in perm)
    return name if order == tuple(range(len(order))) else b.emit(Transpose(order), name)


def take(b: Builder, name: str, tables: Mapping[int, Sequence[int]], fill: float | int | bool = 0) -> str:
    """The tensor whose axis k has the positions that `tables[k]` lists, `fill` for -1. Emits nothing if all stays."""
    shape = b.type(name).shape
    kept = {axis: tuple(t) for axis, t in tables.items() if not _keeps(t, shape[axis])}
    return b.emit(Take(tuple(kept.get(k) for k in range(len(shape))), fill), name) if kept else name


def _keeps(table: Sequence[int], extent: int) -> bool:
    return len(table) == extent and tuple(table) == tuple(range(extent))


def channel_view(b: Builder, name: str, rank: int) -> str:
    """A vector over channels as [1, C, 1, …] of `rank` dimensions."""
    return view(b, name, (1, b.type(name).size, *(1,) * (rank - 2)))


def elementwise(b: Builder, function: Callable[..., Expr], *names: str, hint: str = "") -> str:
    """A Map of `function` over tensors that broadcast. One-element constants become part of the expression."""
    for name in names:
        if b.type(name).dtype not in KERNEL_TYPES:
            raise Unsupported(f"elements of type {b.type(name).dtype.name}")
    names = _without_spreads(b, names)
    inlined = _scalars(b, names)
    tensors = list(dict.fromkeys(name for name in names if name not in inlined))
    args = [
        const(inlined[n], b.type(n).dtype) if n in inlined else arg(tensors.index(n), b.type(n).dtype) for n in names
    ]
    return b.emit(Map(function(*args)), *tensors, hint=hint)


def _without_spreads(b: Builder, names: Sequence[str]) -> tuple[str, ...]:
    """The operands, those that were repeated to the shape of others as they were before: the kernels broadcast."""
    found = list(names)
    shape = np.broadcast_shapes(*(b.type(name).shape for name in names), ())
    for k, name in enumerate(names):
        source = b.spread.get(b.resolve(name))
        if source is not None:
            others = [*found[:k], source, *found[k + 1 :]]
            if np.broadcast_shapes(*(b.type(other).shape for other in others)) == shape:
                found = others
    return tuple(found)


def _scalars(b: Builder, names: Sequence[str]) -> dict[str, float | int | bool]:
    """Finite one-element constants that do not raise the rank of the result."""
    values = {name: value for name in names if (value := b.known(name)) is not None and value.size == 1}
    rank = max((b.type(name).rank for name in names if name not in values), default=-1)
    return {n: v.item() for n, v in values.items() if v.ndim <= rank and np.isfinite(v).all()}


def reduce(
    b: Builder,
    combine: Combine,
    axes: Sequence[int],
    *names: str,
    keepdims: bool = True,
    pre: Callable[..., Expr] | None = None,
    post: Unary | None = None,
    dtype: np.dtype | None = None,
) -> str:
    """post(combine of pre(operands…)) over `axes`, in `dtype` (that of the first operand if not given).

    float16 operands are combined in float32. Without axes, `pre` and `post` are applied to every element. What is
    combined of no elements is the neutral value.
    """
    args = [arg(k, b.type(name).dtype) for k, name in enumerate(names)]
    element = pre(*map(widened, args)) if pre else widened(args[0])
    combined = arg(0, element.dtype)
    result = cast(post(combined) if post else combined, dtype or args[0].dtype)
    before, after = (None if e == a else e for e, a in ((element, args[0]), (result, combined)))
    source = b.type(names[0])
    if not axes:
        return _mapped(b, _mapped(b, names[0], before, *names[1:]), after)
    if source.size == 0:
        empty = _dropped(source.shape, axes, keepdims)
        b.check_constant(empty, element.dtype)
        return _mapped(b, b.constant(np.full(empty, _neutral(combine, element.dtype), element.dtype)), after)
    return b.emit(Reduce(combine, normal_axes(axes, source.rank), keepdims, before, after), *names)


def _mapped(b: Builder, name: str, expr: Expr | None, *others: str) -> str:
    return name if expr is None else b.emit(Map(expr), name, *others)


def _dropped(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    if keepdims:
        return tuple(1 if k in axes else d for k, d in enumerate(shape))
    return tuple(d for k, d in enumerate(shape) if k not in axes)


def _neutral(combine: Combine, dtype: np.dtype) -> float | int | bool:
    """What an empty set combines to."""
    if combine in ("sum", "prod"):
        return 0 if combine == "sum" else 1
    if dtype.kind == "b":
        return combine == "min"
    if dtype.kind == "f":
        return -math.inf if combine == "max" else math.inf
    return np.iinfo(dtype).min if combine == "max" else np.iinfo(dtype).max
