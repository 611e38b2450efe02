"""Conversions between floating point and quantized integers."""

from __future__ import annotations

import numpy as np

from brickrt.graph.builder import KERNEL_TYPES, Builder, OnnxNode, builds
from brickrt.graph.builders.arithmetic.cast import element_type
from brickrt.graph.builders.common import elementwise, normal_axis, optional, reduce, take, view
from brickrt.graph.builders.integers.integer_moves import quantized_twin
from brickrt.graph.builders.integers.quantized_tensors import (
    OFFSET,
    S8,
    U8,
    as_bytes,
    note_dequantized,
    signed_result,
)
from brickrt.graph.builders.scalar import (
    F32,
    F64,
    add,
    div,
    equal,
    like,
    maximum,
    minimum,
    mul,
    rounded,
    sub,
    where,
    wide_type,
)
from brickrt.graph.builders.spatial.resize import saturated
from brickrt.graph.errors import Unsupported
from brickrt.ops.expr import Expr, apply, cast, const


@builds("DequantizeLinear")
def dequantize(b: Builder, node: OnnxNode) -> str:
    """(x - zero point) * scale, in float32 at least."""
    x, scale = node.inputs[0], node.inputs[1]
    _require_kernels(b, *(name for name in node.inputs if name))
    result = element_type(node.attrs["output_dtype"]) if node.attrs.get("output_dtype") else b.type(scale).dtype
    inner = F64 if b.type(scale).dtype == F64 else F32
    if b.integers and result == F32:
        note_dequantized(b, node.outputs[0], node.inputs, node.attrs.get("axis", 1), bool(node.attrs.get("block_size")))

    if result == F32 and node.outputs[0] in b.quantized and (known := as_bytes(b, node.outputs[0])):
        twin, factor, offset = known
        return elementwise(b, lambda v: mul(sub(cast(v, F32), const(offset, F32)), const(factor, F32)), twin)

    def compute(x: Expr, s: Expr, *zero: Expr) -> Expr:
        value = cast(x, inner)
        for z in zero:
            value = sub(value, cast(z, inner))
        return cast(mul(value, cast(s, inner)), result)

    return elementwise(b, compute, x, *_parameters(b, node))


@builds("QuantizeLinear")
def quantize(b: Builder, node: OnnxNode) -> str:
    """round(x / scale) + zero point, saturated."""
    x = node.inputs[0]
    _require_kernels(b, *(name for name in node.inputs if name))
    zero = optional(node, 2)
    code = node.attrs.get("output_dtype")
    result = b.type(zero).dtype if zero else element_type(code) if code else U8
    if result.kind not in "iu":
        raise Unsupported(f"quantization to {result.name}")
    inner = element_type(node.attrs["precision"]) if node.attrs.get("precision") else wide_type(b.type(x).dtype)
    inner = inner if inner.kind == "f" else F32
    if b.integers and result in (U8, S8) and inner == b.type(x).dtype == F32:
        found = _bytes(b, node, result)
        if found:
            return found

    def compute(x: Expr, s: Expr, *zero: Expr) -> Expr:
        value = rounded(cast(div(cast(x, inner), cast(s, inner)), wide_type(inner)))
        for z in zero:
            value = add(value, cast(z, value.dtype))
        return saturated(value, result)

    return elementwise(b, compute, x, *_parameters(b, node))


def _bytes(b: Builder, node: OnnxNode, result: np.dtype) -> str | None:
    """Bytes of one known scale and zero point: moved as integers, or computed as unsigned ones; None for others."""
    scale, zero = (b.known(optional(node, k)) for k in (1, 2))
    if scale is None or scale.size != 1 or (optional(node, 2) and (zero is None or zero.size != 1)):
        return None
    return quantized_bytes(b, node, node.inputs[0], scale, np.zeros(1, result) if zero is None else zero)


def quantized_bytes(b: Builder, node: OnnxNode, name: str, scale: np.ndarray, zero: np.ndarray) -> str:
    """A float32 tensor as the bytes that are a node's output, by one scale and one zero point of their type."""
    factor, offset = float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]) + (OFFSET if zero.dtype == S8 else 0)
    twin = quantized_twin(b, name, factor, offset)
    return twin if zero.dtype == U8 else signed_result(b, node.outputs[0], twin)


@builds("DynamicQuantizeLinear")
def dynamic_quantize(b: Builder, node: OnnxNode) -> tuple[str, ...]:
    """Bytes, scale and zero point, as `by_range` says."""
    return by_range(b, node.inputs[0])


def by_range(b: Builder, x: str) -> tuple[str, str, str]:
    """Floats as unsigned bytes, by scale and zero point from their range, which always includes 0; zeros alone have
    scale 1."""
    axes = tuple(range(b.type(x).rank))
    low = reduce(b, "min", axes, x, keepdims=False, post=lambda v: minimum(v, like(v, 0)))
    high = reduce(b, "max", axes, x, keepdims=False, post=lambda v: maximum(v, like(v, 0)))
    scale = elementwise(b, _dynamic_scale, low, high, hint="scale")
    zero = elementwise(b, lambda m, s: saturated(rounded(apply("neg", div(m, s))), U8), low, scale, hint="zero")

    def compute(x: Expr, s: Expr, z: Expr) -> Expr:
        return saturated(add(rounded(div(x, s)), cast(z, x.dtype)), U8)

    return elementwise(b, compute, x, scale, zero), scale, zero


def _dynamic_scale(low: Expr, high: Expr) -> Expr:
    step = div(sub(high, low), like(high, 255))
    return where(equal(step, like(step, 0)), like(step, 1), step)


def _require_kernels(b: Builder, *names: str) -> None:
    for name in names:
        if b.type(name).dtype not in KERNEL_TYPES:
            raise Unsupported(f"quantized elements of type {b.type(name).dtype.name}")


def _parameters(b: Builder, node: OnnxNode) -> list[str]:
    """Scale and, if there is one, zero point, each broadcasting to the input."""
    return [_spread(b, node, name) for name in node.inputs[1:3] if name]


def _spread(b: Builder, node: OnnxNode, name: str) -> str:
    """One value for all, one per index of the axis, or one per block along it."""
    t, x = b.type(name), b.type(node.inputs[0])
    if t.size == 1:
        return view(b, name, ())
    axis = normal_axis(node.attrs.get("axis", 1), x.rank)
    if t.rank == 1:
        return view(b, name, [t.size if k == axis else 1 for k in range(x.rank)])
    size = node.attrs.get("block_size", 0)
    if not size:
        raise Unsupported("quantization parameters that are neither per tensor, per axis nor per block")
    return take(b, name, {axis: [k // size for k in range(x.shape[axis])]})
