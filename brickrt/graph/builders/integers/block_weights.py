"""Constant matrices that DequantizeLinear gives: products take them as they are stored, in bytes or half bytes.

The float32 matrix is only made where something else reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
from onnx import TensorProto

from brickrt.graph.builder import Builder, OnnxNode
from brickrt.graph.builders.common import elementwise, optional
from brickrt.graph.builders.integers.quantized_tensors import HALF_BYTES, note_dequantized
from brickrt.graph.builders.scalar import F32, mul
from brickrt.ops.operators.block_matmul import BlockMatMul

OFFSETS = {  # what makes elements of a type unsigned
    np.dtype(np.uint8): 0,
    np.dtype(np.int8): 128,
    np.dtype(ml_dtypes.uint4): 0,
    np.dtype(ml_dtypes.int4): 8,
}


@dataclass(frozen=True, eq=False)
class BlockWeights:
    """(`values` - `zero`) · `scale`, all matrices; `scale` and `zero` have one element for each `block` along `axis`,
    and one or as many as the values along the other axis."""

    values: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    axis: int
    block: int

    def turned(self) -> BlockWeights:
        """The transposed matrix."""
        return BlockWeights(self.values.T, self.scale.T, self.zero.T, 1 - self.axis, self.block)

    def __call__(self) -> np.ndarray:
        """The float32 matrix, as ONNX defines it."""
        extents = self.values.shape[self.axis]
        scale, zero = (
            np.repeat(each, self.block, self.axis).take(range(extents), self.axis) for each in (self.scale, self.zero)
        )
        return (self.values.astype(F32) - zero.astype(F32)) * scale

    def without_row_scales(self) -> BlockWeights | None:
        """The matrix with one scale, of 1, in place of those of its rows; None where it has others, or rows have zero
        points that differ."""
        if self.axis != 1 or len(self.scale.T) != 1 or (self.zero != self.zero[0]).any():
            return None
        return BlockWeights(self.values, np.ones((1, 1), F32), self.zero[:1], 0, len(self.values))

    def operands(self) -> tuple[BlockMatMul, list[np.ndarray]] | None:
        """The operator that multiplies with the matrix, and its operands q, scale and zero; None where there is none,
        as blocks lie along the columns."""
        depth, columns = self.values.shape
        if self.axis != 0 or not self.values.size:
            return None
        halves = self.values.dtype in HALF_BYTES and depth % 2 == 0 and self.block % 2 == 0
        offset, shape = OFFSETS[self.values.dtype], (len(self.scale), columns)
        q, zero = (_unsigned(each, offset) for each in (self.values, self.zero))
        q = q[0::2] | q[1::2] << 4 if halves else np.ascontiguousarray(q)
        scale, zero = (np.ascontiguousarray(np.broadcast_to(each, shape)) for each in (self.scale, zero))
        return BlockMatMul(block=self.block, bits=4 if halves else 8), [q, scale, zero]


def _unsigned(array: np.ndarray, offset: int) -> np.ndarray:
    """Integers plus an offset, as unsigned bytes."""
    return (array.astype(np.int8).view(np.uint8) if offset else array.astype(np.uint8)) + np.uint8(offset)


def stored_matrix(b: Builder, node: OnnxNode) -> BlockWeights | None:
    """What a node gives as products take it from constants of few bits; None for any other node."""
    if node.domain or node.op_type not in ("DequantizeLinear", "Transpose"):
        return None
    return block_weights(b, node) if node.op_type == "DequantizeLinear" else turned_weights(b, node)


def block_weights(b: Builder, node: OnnxNode) -> BlockWeights | None:
    """The matrix that a DequantizeLinear of constants gives; None for what is no such matrix in float32."""
    values, scale = (b.known(name) for name in node.inputs[:2])
    zero = b.known(optional(node, 2)) if optional(node, 2) else None if values is None else np.zeros((), values.dtype)
    if not b.integers or values is None or scale is None or zero is None or values.dtype not in OFFSETS:
        return None
    code, axis, block = node.attrs.get("output_dtype"), node.attrs.get("axis", 1), node.attrs.get("block_size", 0)
    if values.ndim > 2 and values.dtype in HALF_BYTES:  # convolutions multiply them as bytes
        note_dequantized(b, node.outputs[0], node.inputs, axis, bool(block))
    if values.ndim != 2 or scale.dtype != F32 or code not in (None, 0, TensorProto.FLOAT) or not -2 <= axis < 2:
        return None
    found = _spread(values, scale, zero, axis % 2, block)
    if found is not None:
        note_dequantized(b, node.outputs[0], node.inputs, axis, bool(block))
    return found


def _spread(values: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int, block: int) -> BlockWeights | None:
    """Parameters of a tensor, of an axis or of blocks along it as matrices."""
    shape = values.shape
    if block:
        shape = tuple(-(-extent // block) if k == axis else extent for k, extent in enumerate(shape))
    elif scale.size > 1:
        axis = 1 - axis
        block, shape = values.shape[axis], tuple(1 if k == axis else extent for k, extent in enumerate(shape))
    else:
        axis, block, shape = 0, max(1, len(values)), (1, 1)
    if scale.size != np.prod(shape) or zero.size not in (1, scale.size):
        return None
    parameters = scale.reshape(shape), np.broadcast_to(zero.reshape(shape if zero.size > 1 else (1, 1)), shape)
    return BlockWeights(values, *parameters, axis, block)


def turned_weights(b: Builder, node: OnnxNode) -> BlockWeights | None:
    """The matrix that a Transpose of such a one gives."""
    found = b.deferred.get(b.resolve(node.inputs[0]))
    return (
        found.turned() if isinstance(found, BlockWeights) and tuple(node.attrs.get("perm", (1, 0))) == (1, 0) else None
    )


def block_product(b: Builder, x: str, weights: str, bias: str = "", transposed: bool = False) -> str | None:
    """The product of a float32 tensor and a constant that stays in few bits; None where it is no such product."""
    found = b.deferred.get(b.resolve(weights))
    if not isinstance(found, BlockWeights) or b.type(x).dtype != F32 or b.type(x).rank < 2 or b.known(x) is not None:
        return None
    found = found.turned() if transposed else found
    plain = found.without_row_scales()
    if plain is not None and b.type(x).shape[-1] == len(found.values):
        x, found = elementwise(b, mul, x, b.constant(np.ascontiguousarray(found.scale[:, 0]), "scale")), plain
    known = found.operands() if b.type(x).shape[-1] == len(found.values) and b.type(x).size else None
    if known is None:
        return None
    op, arrays = known
    names = [b.constant(array, hint) for array, hint in zip(arrays, ("weights", "scale", "zero"), strict=True)]
    return b.emit(replace(op, bias=bool(bias)), x, *names, *([bias] if bias else []))
