"""Convolutions and matrix products of quantized operands, summed as integers.

    (x - zero) · weights · scales  =  (x · weights + bias - zero · sum of the weights) · scales

The offset of the input is a constant of each output channel, part of the bias. Where it is not 0, padding is written
around the input first, so that it is as far from zero as the input says.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from brickrt.graph.builder import Builder, Quantized
from brickrt.graph.builders.common import elementwise, take, view
from brickrt.graph.builders.integers.byte_weights import ByteWeights, as_weights
from brickrt.graph.builders.integers.quantized_tensors import (
    OFFSET,
    S8,
    U8,
    as_bias,
    as_bytes,
    note_parameters,
    unsigned_twin,
)
from brickrt.graph.builders.scalar import F32, add, mul, sub, where
from brickrt.ops.expr import Expr, cast
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.product import Product
from brickrt.ops.operators.product_types import SUMS

WORD, LANES = 4, 16
"""Kernels multiply so many channels of a group at a time, and sum for so many at a time."""
LARGEST = 255  # of an unsigned byte


def integer_conv(b: Builder, op: Conv, x: str, weights: str, bias: str = "") -> str | None:
    """The convolution `op` of dequantized tensors in float32, summed as integers; None where kernels take none such."""
    found, known = b.integers and as_weights(b, weights, 0), as_bytes(b, x) if b.integers else None
    if not found or not known or not _kernel_takes(op, found.values.shape):
        return None
    name, scale, zero = known
    return _product(b, op, (name, zero, scale), found, bias)


def integer_conv_transpose(b: Builder, op: ConvTranspose, x: str, weights: str, bias: str = "") -> str | None:
    """As `integer_conv`, of inputs whose zero point is 0: how many weights an output sums depends on where it is."""
    found, known = b.integers and as_weights(b, weights, 1), as_bytes(b, x) if b.integers else None
    if not found or not known or known[2] or op.groups > 1:
        return None
    name, scale, zero = known
    return _product(b, op, (name, zero, scale), found, bias)


def integer_matmul(b: Builder, x: str, weights: str, bias: str = "", transposed: bool = False) -> str | None:
    """The product of a dequantized tensor and a matrix in float32, summed as integers; None where kernels take none
    such. `transposed` weights are [N, K]."""
    found, known = b.integers and as_weights(b, weights, 0 if transposed else 1), as_bytes(b, x) if b.integers else None
    if not found or not known or not _takes(b, MatMul(), known[0], found):
        return None
    name, scale, zero = known
    return _product(b, MatMul(), (name, zero, scale), found.turned() if transposed else found, bias)


def quantized_operands(b: Builder, x: tuple[str, str, str], w: tuple[str, str, str], bias: str, axis: int) -> list[str]:
    """Names by which `integer_conv` and `integer_matmul` know operands that come with scale and zero point each, and a
    bias in units of both scales."""
    names = [note_parameters(b, *x), note_parameters(b, *w, axis)]
    first, second = (b.quantized.get(name) for name in names)
    if bias and first and second and b.known(bias) is not None:
        unit = (first.scale * second.scale).astype(F32)
        names.append(f"{names[1]}·bias")
        b.quantized[names[2]] = Quantized(b.resolve(bias), unit, np.zeros(1, np.int64), 0)
    return [*names, ""][:3]


def _kernel_takes(op: Conv, weights: tuple[int, ...]) -> bool:
    """Whether there is a kernel for the groups: one, or as many as channels, or of whole words and vectors."""
    each = weights[0] // op.groups
    return op.groups == 1 or weights[1] == each == 1 or (weights[1] % WORD == 0 and each % LANES == 0)


def centered_sums(b: Builder, op: Conv | MatMul, x: str, zero: str, weights: str, weights_zero: str) -> str | None:
    """The int32 sums of bytes less their zero point times constant bytes less theirs; None where kernels take none
    such. A zero point of the input that is computed is subtracted from the sums, times those of the weights."""
    if not b.integers or b.known(x) is not None or b.type(x).dtype not in (U8, S8) or (zero and b.type(zero).size > 1):
        return None
    channel = 0 if isinstance(op, Conv) else 1
    one = b.constant(np.ones(b.type(weights_zero).size if weights_zero else 1, F32))
    found, known = as_weights(b, note_parameters(b, weights, one, weights_zero, channel), channel), b.known(zero)
    if not found or not _takes(b, op, x, found):
        return None
    twin = unsigned_twin(b, x)
    if isinstance(op, Conv) and zero and known is None and _pads(op):
        twin, op = _padded_by(b, twin, op, unsigned_twin(b, zero)), without_pads(op)
    offset = (OFFSET if b.type(x).dtype == S8 else 0) + (0 if known is None else int(known.reshape(-1)[0]))
    sums = integer_sums(b, op, twin, offset, found, np.zeros(1, np.int64))
    if sums is None or not zero or known is not None:
        return sums
    return elementwise(b, _less_zeros, sums, view(b, zero, ()), _per_channel(b, found.totals.astype(SUMS), sums, op))


def _less_zeros(total: Expr, zero: Expr, weights: Expr) -> Expr:
    return sub(total, mul(cast(zero, SUMS), weights))


def _pads(op: Conv | MatMul) -> bool:
    return isinstance(op, Conv) and any(op.pads + op.pads_end)


def _takes(b: Builder, op: Conv | MatMul, x: str, w: ByteWeights) -> bool:
    if isinstance(op, Conv):
        return _kernel_takes(op, w.values.shape)
    return w.values.ndim == 2 and b.type(x).rank >= 2 and b.type(x).shape[-1] % WORD == 0


def _product(b: Builder, op: Product, x: tuple[str, int, float], w: ByteWeights, bias: str) -> str | None:
    name, zero, scale = x
    unit = np.float32(scale) * w.scales
    whole = as_bias(b, bias, unit) if bias else np.zeros(1, np.int64)
    sums = integer_sums(b, op, name, zero, w, np.zeros(1, np.int64) if whole is None else whole)
    if sums is None:
        return None
    factor = _per_channel(b, unit.astype(F32), sums, op)
    if whole is not None:
        return elementwise(b, lambda t, s: mul(cast(t, F32), s), sums, factor, hint="dequantized")
    known = b.known(bias)
    rest = _per_channel(b, known, sums, op) if known is not None else bias
    return elementwise(b, _with_bias, sums, factor, rest, hint="dequantized")


def _with_bias(total: Expr, factor: Expr, bias: Expr) -> Expr:
    return add(mul(cast(total, F32), factor), bias)


def integer_sums(b: Builder, op: Product, x: str, zero: int, w: ByteWeights, bias: np.ndarray) -> str | None:
    """The int32 sums of unsigned bytes less `zero` times `w`, plus bias; None where they may not fit 32 bits, or no
    kernel takes their shifts."""
    fits = LARGEST * w.largest + np.abs(bias - zero * w.totals).max() < 2**31
    if not fits or (w.shift.any() and not _sums_inputs(op, w)):
        return None
    if isinstance(op, Conv) and zero and _pads(op):
        x, op = padded(b, x, op, zero), without_pads(op)
    sums = _emitted(b, op, x, w.values, bias - zero * w.values.sum(w.others, dtype=np.int64))
    if not w.shift.any():
        return sums
    ones = np.ones((op.groups if isinstance(op, Conv) else w.values.shape[0], *w.values.shape[1:]), np.int8)
    ones = ones if isinstance(op, Conv) else ones[:, :1]
    count = ones.size // ones.shape[w.axis]
    inputs = _emitted(b, op, x, ones, np.full(ones.shape[w.axis], -zero * count))
    return elementwise(b, _shifted, sums, inputs, _per_channel(b, w.shift.astype(SUMS), sums, op))


def _sums_inputs(op: Product, w: ByteWeights) -> bool:
    """Whether the sums of inputs that belong to an output channel lie in one channel for all, or in its own."""
    return isinstance(op, MatMul) or (isinstance(op, Conv) and op.groups in (1, w.values.shape[0]))


def _shifted(total: Expr, inputs: Expr, shift: Expr) -> Expr:
    return add(total, mul(inputs, shift))


def _emitted(b: Builder, op: Product, x: str, w: np.ndarray, bias: np.ndarray) -> str:
    constants = (b.constant(w, "weights"), b.constant(bias.astype(np.int32), "bias"))
    return b.emit(replace(op, bias=True), x, *constants, hint="sums")


def padded(b: Builder, x: str, op: Conv, fill: int) -> str:
    """The input of a convolution with its padding around it."""
    shape = b.type(x).shape
    tables = {
        2 + axis: [-1] * before + list(range(shape[2 + axis])) + [-1] * behind
        for axis, (before, behind) in enumerate(zip(op.pads, op.pads_end, strict=True))
        if before or behind
    }
    return take(b, x, tables, fill)


def _padded_by(b: Builder, x: str, op: Conv, zero: str) -> str:
    """The same with a computed value around the input."""
    shape = b.type(x).shape[2:]
    outside = np.pad(np.zeros(shape, np.bool_), list(zip(op.pads, op.pads_end, strict=True)), constant_values=True)
    mask = b.constant(outside[None, None], "outside")
    return elementwise(b, lambda v, o, z: where(o, z, v), padded(b, x, op, 0), mask, view(b, zero, ()), hint="padded")


def without_pads(op: Conv) -> Conv:
    """The convolution of an input that has its padding around it."""
    return replace(op, pads=(0,) * len(op.kernel), pads_end=(0,) * len(op.kernel))


def _per_channel(b: Builder, values: np.ndarray, product: str, op: Product) -> str:
    """A constant of one value, or one per output channel, as it broadcasts to the product."""
    rank = b.type(product).rank
    channel = rank - 1 if isinstance(op, MatMul) else 1
    name = b.constant(np.asarray(values))
    size = math.prod(values.shape)
    return view(b, name, [size if k == channel else 1 for k in range(rank)] if size > 1 else ())
