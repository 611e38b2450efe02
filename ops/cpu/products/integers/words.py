"""Operands of integer products in words: four adjacent channels, a byte each, are one 32-bit element.

A product of bytes then has the form of one in float32: a word of the input is broadcast to all lanes, and each lane has
a word of weights. Weights of channels that are not there are zero, whatever the input has in their place.
"""

from __future__ import annotations

import numpy as np

from brickrt.ops.cpu.operand import Operand
from brickrt.ops.operators.product_types import FACTORS, SUMS
from brickrt.ops.types import TensorType

BYTES = 4  # of a word


def multiplies_integers(ins: tuple[Operand, ...]) -> bool:
    """Whether a product with these inputs is one of integers."""
    return (ins[0].dtype, ins[1].dtype) == FACTORS


def in_words(operand: Operand, axis: int) -> Operand:
    """An operand whose elements along `axis` are adjacent, in words of them.

    Raises LookupError where words would reach over the end of a row.
    """
    shape, strides, block = list(operand.shape), list(operand.strides), operand.block
    if any(stride % BYTES for k, stride in enumerate(strides) if k != axis or block > 1) or (
        block % BYTES if block > 1 else strides[axis] != 1 or shape[axis] % BYTES
    ):
        raise LookupError(f"integers {operand.type} do not lie in words of four")
    shape[axis] = -(-shape[axis] // BYTES)
    inner = [stride // BYTES for stride in strides]
    if block == 1:
        inner[axis] = 1
    return Operand(TensorType(tuple(shape), SUMS), tuple(inner), max(1, block // BYTES))


def pack_words(array: np.ndarray, axis: int) -> np.ndarray:
    """Bytes as int32, four along `axis` to each, the first in the lowest byte; bytes past the end are zero."""
    moved = np.moveaxis(array, axis, -1)
    missing = -moved.shape[-1] % BYTES
    padded = np.pad(moved, [(0, 0)] * (moved.ndim - 1) + [(0, missing)])
    words = np.ascontiguousarray(padded).view(np.dtype("<i4"))
    return np.moveaxis(words, -1, axis).astype(SUMS, copy=False)
