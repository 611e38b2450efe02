"""MatMulNBits of constants, which stay as small as they are stored."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import convert, elementwise, optional, positive, wide
from brickrt.graph.builders.integers.block_weights import BlockWeights, block_product
from brickrt.graph.builders.scalar import F32, add
from brickrt.graph.contrib.body import CONTRIB
from brickrt.graph.errors import Unsupported
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import TensorType

UINT4 = np.dtype(ml_dtypes.uint4)
BITS = (2, 4, 8)


@builds("MatMulNBits", domain=CONTRIB)
def matmul_nbits(b: Builder, node: OnnxNode) -> str:
    """x times dequantized weights, plus a bias, in float32 at least."""
    dtype, found = b.type(node.inputs[0]).dtype, _stored(b, node)
    x, bias = wide(b, node.inputs[0]), wide(b, optional(node, 5)) if optional(node, 5) else ""
    return convert(b, stored_product(b, x, found, bias), dtype)


def stored_product(b: Builder, x: str, found: BlockWeights, bias: str = "") -> str:
    """x times weights as they are stored, plus a bias; of the float32 matrix where no kernel takes these."""
    if b.integers:
        name = b.fresh("stored")
        b.defer(name, TensorType(found.values.shape, F32), found)
        y = block_product(b, x, name, bias)
        if y is not None:
            return y
    y = b.emit(MatMul(), x, b.constant(found(), "weights"))
    return elementwise(b, add, y, bias) if bias else y


def _stored(b: Builder, node: OnnxNode) -> BlockWeights:
    """The matrix [K, N]. Raises Unsupported for weights that are computed, taken in another order, or have zero points
    that are no integers."""
    packed, scale, zero = (b.known(optional(node, k)) for k in (1, 2, 3))
    bits = node.attrs.get("bits", 4)
    depth, columns, block = (positive(node, name) for name in ("K", "N", "block_size"))
    whole = not optional(node, 3) or (zero is not None and zero.dtype == np.uint8)
    if packed is None or scale is None or not whole or optional(node, 4) or bits not in BITS:
        raise Unsupported("weights that are not constants of blocks in order")
    blocks = -(-depth // block)
    values = _unpacked(packed.reshape(columns, -1), bits, depth)
    middle = np.full((blocks, columns), 1 << (bits - 1), np.uint8)
    zeros = middle if zero is None else _unpacked(zero.reshape(columns, -1), bits, blocks)
    return BlockWeights(
        values if bits == 8 else values.view(UINT4), scale.reshape(columns, blocks).T.astype(F32), zeros, 0, block
    )


def _unpacked(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The first `count` values of each row of bytes, the lowest bits first, as columns [count, rows]."""
    parts = [packed >> shift & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.ascontiguousarray(np.stack(parts, -1).reshape(len(packed), -1)[:, :count].T)
