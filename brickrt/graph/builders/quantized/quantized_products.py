"""Convolutions and matrix products of quantized integers: as such where kernels take them, else in floats, whose sums
are exact: float32 for short products of matrices, float64 for others."""

from __future__ import annotations

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.arithmetic.matrix import product
from brickrt.graph.builders.common import convert, elementwise, optional, view
from brickrt.graph.builders.integers.integer_products import (
    centered_sums,
    integer_conv,
    integer_matmul,
    quantized_operands,
)
from brickrt.graph.builders.quantized.quantization import quantized_bytes
from brickrt.graph.builders.scalar import F32, F64, add, div, mul, rounded, sub
from brickrt.graph.builders.spatial.convolution import convolved, plain_conv
from brickrt.graph.builders.spatial.resize import saturated
from brickrt.graph.errors import Unsupported
from brickrt.ops.expr import Expr, cast
from brickrt.ops.operators.matmul import MatMul

INT32 = np.dtype(np.int32)
EXACT_IN_FLOAT32 = 2**24
"""Integers below have no neighbour in float32 that is further than 1."""


@builds("MatMulInteger")
def matmul_integer(b: Builder, node: OnnxNode) -> str:
    """The product of integers less their zero points, in int32."""
    found = centered_sums(b, MatMul(), node.inputs[0], optional(node, 2), node.inputs[1], optional(node, 3))
    if found:
        return found
    x, y = ((node.inputs[k], optional(node, 2 + k)) for k in range(2))
    return convert(b, _exact_product(b, node, x, y), INT32)


@builds("ConvInteger")
def conv_integer(b: Builder, node: OnnxNode) -> str:
    """The convolution of integers less their zero points, in int32."""
    op = plain_conv(b, node, *node.inputs[:2])
    found = centered_sums(b, op, node.inputs[0], optional(node, 2), node.inputs[1], optional(node, 3))
    if found:
        return found
    x = _centered(b, node.inputs[0], optional(node, 2))
    weights = _centered(b, node.inputs[1], _per_filter(b, node.inputs[1], optional(node, 3)))
    return convert(b, convolved(b, node, x, weights), INT32)


@builds("QLinearMatMul")
def quantized_matmul(b: Builder, node: OnnxNode) -> str:
    """A product of quantized matrices, quantized again."""
    a, a_scale, a_zero, c, c_scale, c_zero, scale, zero = node.inputs
    if b.type(scale).size > 1 or b.type(zero).size > 1:
        raise Unsupported("a quantized result with a scale per row")
    if known := _known_result(b, node):
        x, w, _ = quantized_operands(b, (a, a_scale, a_zero), (c, c_scale, c_zero), "", axis=1)
        found = integer_matmul(b, x, w)
        if found:
            return quantized_bytes(b, node, found, *known)
    total = _exact_product(b, node, (a, a_zero), (c, c_zero))
    return _requantized(b, total, (_per_row(b, node, a_scale), c_scale, scale), zero)


@builds("QLinearConv")
def quantized_conv(b: Builder, node: OnnxNode) -> str:
    """A convolution of quantized operands, quantized again."""
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero = node.inputs[:8]
    if known := _known_result(b, node):
        operands = quantized_operands(b, (x, x_scale, x_zero), (w, w_scale, w_zero), optional(node, 8), axis=0)
        found = integer_conv(b, plain_conv(b, node, x, w), *operands)
        if found:
            return quantized_bytes(b, node, found, *known)
    weights = _centered(b, w, _per_filter(b, w, w_zero))
    bias = [convert(b, name, F64) for name in node.inputs[8:] if name]
    total = convolved(b, node, _centered(b, x, x_zero), weights, *bias)
    filters = b.type(w_scale).size
    if filters > 1:
        w_scale = view(b, w_scale, (1, filters, *(1,) * (b.type(x).rank - 2)))
    return _requantized(b, total, (x_scale, w_scale, scale), zero)


def _known_result(b: Builder, node: OnnxNode) -> tuple[np.ndarray, np.ndarray] | None:
    """Scale and zero point of a node's output where they are constants, and integers are computed as such."""
    scale, zero = (b.known(name) for name in node.inputs[6:8])
    if not b.integers or scale is None or zero is None or scale.size != 1 or scale.dtype != np.float32:
        return None
    return (scale, zero) if zero.dtype.itemsize == 1 and zero.dtype.kind in "iu" and zero.size == 1 else None


def _exact_product(b: Builder, node: OnnxNode, left: tuple[str, str], right: tuple[str, str]) -> str:
    """The product of integers less their zero points, in a type in which all sums are exact. That is float64 for
    constants, whose products may go by Strassen's scheme, and on GPUs, which may round factors of float32."""
    (x, x_zero), (y, y_zero) = left, right
    largest = b.type(x).shape[-1] * _largest(b, x, x_zero) * _largest(b, y, y_zero)
    plain = b.integers and b.known(y) is None
    kind = F32 if plain and largest < EXACT_IN_FLOAT32 else F64
    return product(b, _centered(b, x, _per_row(b, node, x_zero), kind), _centered(b, y, y_zero, kind))


def _largest(b: Builder, name: str, zero: str) -> int:
    """The largest magnitude that integers less their zero point may have."""
    low, high = (int(end) for end in (np.iinfo(b.type(name).dtype).min, np.iinfo(b.type(name).dtype).max))
    known = b.known(zero) if zero else np.zeros(1)
    if known is None or not known.size:
        return high - low
    return max(high - int(known.min()), int(known.max()) - low)


def _centered(b: Builder, name: str, zero: str, kind: np.dtype = F64) -> str:
    """The integers less their zero point."""
    if not zero:
        return convert(b, name, kind)
    return elementwise(b, lambda x, z: sub(cast(x, kind), cast(z, kind)), name, zero)


def _per_row(b: Builder, node: OnnxNode, name: str) -> str:
    """A vector of one value per row of the left matrix as a column."""
    vector = bool(name) and b.type(name).rank == 1 and b.type(name).size > 1 and b.type(node.inputs[0]).rank > 1
    return view(b, name, (b.type(name).size, 1)) if vector else name


def _per_filter(b: Builder, weights: str, name: str) -> str:
    """A vector of one value per filter against the weights."""
    vector = bool(name) and b.type(name).size > 1
    return view(b, name, (b.type(name).size, *(1,) * (b.type(weights).rank - 1))) if vector else name


def _requantized(b: Builder, total: str, scales: tuple[str, str, str], zero: str) -> str:
    """round(total * left scale * right scale / scale of the result) + zero point, saturated; in the type of the sums,
    which holds them exactly."""
    dtype, kind = b.type(zero).dtype, b.type(total).dtype

    def compute(t: Expr, left: Expr, right: Expr, scale: Expr, z: Expr) -> Expr:
        factor = div(mul(cast(left, kind), cast(right, kind)), cast(scale, kind))
        return saturated(add(rounded(mul(t, factor)), cast(z, kind)), dtype)

    return elementwise(b, compute, total, *scales, zero)
