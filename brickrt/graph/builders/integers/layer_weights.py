"""The weights of recurrent layers: floats, or bytes with scales, which stay that small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, Quantized
from brickrt.graph.builders.integers.block_weights import BlockWeights
from brickrt.graph.builders.integers.integer_products import integer_matmul
from brickrt.graph.builders.integers.packed_weights import stored_product
from brickrt.graph.builders.integers.quantized_tensors import S8, U8

BYTES = np.iinfo(np.int8)


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """Weights [D, G·H, I] of what a layer reads and [D, G·H, H] of its state: floats, or signed bytes. Those of the
    state have a `scale` [D, G·H] then, and `product` multiplies rows [T·B, I] with the others and adds a bias. Kernels
    may round states to `state_bytes`, as `Recurrence` says."""

    read: np.ndarray
    fed_back: np.ndarray
    scale: np.ndarray | None = None
    product: Callable[[Builder, str, str], str] | None = None
    state_bytes: int = 3


def dequantized_weights(b: Builder, node: OnnxNode) -> LayerWeights | None:
    """The weights of a standard layer, where DequantizeLinear gives them: as signed bytes. None for any others."""
    if not b.integers:
        return None
    read, fed_back = (_signed(b, name) for name in node.inputs[1:3])
    if read is None or fed_back is None:
        return None
    return LayerWeights(read[0], fed_back[0], fed_back[1], partial(_product, weights=matrix_of(*read)))


def matrix_of(read: np.ndarray, scale: np.ndarray) -> BlockWeights:
    """Weights [D, G·H, I] in bytes as the matrix [I, D·G·H] that rows are multiplied with."""
    matrix = np.ascontiguousarray(read.reshape(-1, read.shape[-1]).T)
    return BlockWeights(matrix, scale.reshape(1, -1), np.zeros_like(matrix[:1, :1]), 0, len(matrix))


def _signed(b: Builder, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Constant bytes [D, G·H, …] less their zero points, and their scales [D, G·H]; None where they are no such
    constant, or no signed bytes."""
    found = b.quantized.get(b.resolve(name))
    values = None if found is None else b.known(found.tensor)
    if found is None or values is None or values.ndim != 3 or values.dtype not in (U8, S8) or not values.size:
        return None
    axis = found.axis % values.ndim if found.scale.size > 1 else 0
    if axis > 1:
        return None
    scale, zero = (part if axis else part[:, None] for part in (found.scale, found.zero.astype(np.int16)))
    centered = values - np.broadcast_to(zero, values.shape[:2])[..., None]
    if centered.min() < BYTES.min or centered.max() > BYTES.max:
        return None
    return centered.astype(np.int8), np.ascontiguousarray(np.broadcast_to(scale, values.shape[:2]))


def _product(b: Builder, x: str, bias: str, weights: BlockWeights) -> str:
    """Rows times a matrix of bytes, plus a bias: of integers, where the rows are such too."""
    name = b.fresh("read")
    zero = np.zeros(1, np.int64)
    b.quantized[name] = Quantized(b.constant(weights.values), weights.scale.reshape(-1), zero, 1)
    return integer_matmul(b, x, name, bias) or stored_product(b, x, weights, bias)
