"""Operands of products in words: adjacent channels, four bytes or two bfloat16, are one 32-bit element.

A product of them then has the form of one in float32: a word of the input is broadcast to all lanes, and each lane has
a word of weights. Weights of channels that are not there are zero: bytes may have anything in their place. Pairs may
not, since zero times NaN is NaN, so an odd channel is never in a pair.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from brickrt.ops.cpu.emit.llvm_types import BFLOAT16
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.operators.product_types import FACTORS
from brickrt.ops.types import TensorType

WORD = np.dtype(np.int32)


def word_elements(dtype: np.dtype) -> int:
    """How many elements a word has."""
    return WORD.itemsize // dtype.itemsize


def multiplies_integers(ins: Sequence[Operand]) -> bool:
    """Whether a product with these inputs is one of integers."""
    return (ins[0].dtype, ins[1].dtype) == FACTORS


def multiplies_pairs(ins: Sequence[Operand], axis: int, groups: int = 1) -> bool:
    """Whether a product sums pairs of bfloat16, which lie adjacent along `axis` of its first input and belong to one
    of its groups."""
    if not ins[0].dtype == ins[1].dtype == BFLOAT16 or ins[0].shape[axis] // groups % 2:
        return False
    try:
        in_words(ins[0], axis)
    except LookupError:
        return False
    return True


def in_words(operand: Operand, axis: int) -> Operand:
    """An operand whose elements along `axis` are adjacent, in words of them.

    Raises LookupError where words would reach over the end of a row.
    """
    each = word_elements(operand.dtype)
    shape, strides, block = list(operand.shape), list(operand.strides), operand.block
    if any(stride % each for k, stride in enumerate(strides) if k != axis or block > 1) or (
        block % each if block > 1 else strides[axis] != 1 or shape[axis] % each
    ):
        raise LookupError(f"{operand.type} does not lie in words of {each}")
    shape[axis] = -(-shape[axis] // each)
    inner = [stride // each for stride in strides]
    if block == 1:
        inner[axis] = 1
    return Operand(TensorType(tuple(shape), WORD), tuple(inner), max(1, block // each))


def pack_words(array: np.ndarray, axis: int) -> np.ndarray:
    """Elements as int32, those of a word along `axis` in one, the first in the lowest bits; those past the end are
    zero."""
    each, raw = word_elements(array.dtype), np.dtype(f"<u{array.dtype.itemsize}")
    moved = np.moveaxis(array.view(raw), axis, -1)
    missing = -moved.shape[-1] % each
    padded = np.pad(moved, [(0, 0)] * (moved.ndim - 1) + [(0, missing)])
    words = np.ascontiguousarray(padded).view(np.dtype("<i4"))
    return np.moveaxis(words, -1, axis).astype(WORD, copy=False)
