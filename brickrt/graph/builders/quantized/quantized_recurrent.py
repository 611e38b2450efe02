"""LSTM with weights in bytes, which stay that small."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import elementwise
from brickrt.graph.builders.integers.block_weights import BlockWeights
from brickrt.graph.builders.integers.integer_products import centered_sums
from brickrt.graph.builders.integers.layer_weights import BYTES, LayerWeights, matrix_of
from brickrt.graph.builders.integers.packed_weights import stored_product
from brickrt.graph.builders.quantized.quantization import by_range
from brickrt.graph.builders.recurrent import LSTM, recurrent_layer
from brickrt.graph.builders.scalar import F32, add, mul, sub
from brickrt.graph.contrib.body import CONTRIB
from brickrt.graph.errors import Unsupported
from brickrt.ops.expr import Expr, cast
from brickrt.ops.operators.matmul import MatMul

STATE_BYTES = 2  # where ONNX Runtime rounds states to one


@builds("DynamicQuantizeLSTM", domain=CONTRIB)
def dynamic_lstm(b: Builder, node: OnnxNode) -> tuple[str, ...]:
    """Y, Y_h, Y_c by the weights less their zero points, times their scales. Raises Unsupported for weights that are
    computed, or no signed bytes once their zero point is taken off."""
    if not b.cpu_operators or not b.integers:
        raise Unsupported("recurrent layers of bytes on this device")
    (read, scale), (fed_back, state_scale) = (_factors(b, node, k, at) for k, at in ((1, 8), (2, 10)))
    given = LayerWeights(read, fed_back, state_scale, partial(_product, weights=matrix_of(read, scale)), STATE_BYTES)
    return recurrent_layer(b, replace(node, inputs=node.inputs[:8]), LSTM, given)


def _factors(b: Builder, node: OnnxNode, k: int, at: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights [D, gates, inputs] as signed bytes, and their scales [D, gates]."""
    values, scale, zero = (b.known(node.inputs[i]) for i in (k, at, at + 1))
    if values is None or scale is None or zero is None or values.ndim != 3:
        raise Unsupported("weights that are no constants")
    scale, zero = np.atleast_1d(scale), np.atleast_1d(zero)
    many = (values.shape[0], 1, values.shape[2])
    scales = np.broadcast_to(scale.astype(F32).reshape(len(scale), 1, -1), many)
    centered = values.astype(np.int16) - zero.astype(np.int16).reshape(len(zero), 1, -1)
    if centered.min(initial=0) < BYTES.min or centered.max(initial=0) > BYTES.max:
        raise Unsupported("weights that are no signed bytes")
    turned = np.ascontiguousarray(centered.astype(np.int8).transpose(0, 2, 1))
    return turned, np.ascontiguousarray(scales[:, 0])


def _product(b: Builder, x: str, bias: str, weights: BlockWeights) -> str:
    """Rows, quantized by their own range, times a matrix of signed bytes with a scale for each column, plus a bias."""
    q, step, zero = by_range(b, x)
    sums = centered_sums(b, MatMul(), q, zero, b.constant(weights.values), "")
    if sums is not None:
        factor = elementwise(b, mul, step, b.constant(weights.scale.reshape(-1)))
        return elementwise(b, _scaled, sums, factor, bias)
    return stored_product(b, elementwise(b, _dequantized, q, zero, step), weights, bias)


def _scaled(total: Expr, factor: Expr, bias: Expr) -> Expr:
    return add(mul(cast(total, F32), factor), bias)


def _dequantized(q: Expr, zero: Expr, step: Expr) -> Expr:
    return mul(sub(cast(q, F32), cast(zero, F32)), step)
