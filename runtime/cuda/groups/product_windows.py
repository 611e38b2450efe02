"""What a library reads of its operands for bricks of a product: windows of equal shape, wherever the bricks lie."""

from __future__ import annotations

from typing import Literal

import numpy as np

from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.product import Product
from brickrt.ops.regions import columns
from brickrt.ops.types import Boxes, TensorType


def layout_of(op: Product) -> Literal["plain", "last"]:
    """How a library wants images, and matrices."""
    return "plain" if isinstance(op, MatMul) else "last"


def channels_of(op: Product, rank: int) -> int:
    """The axis of a product that is never cut."""
    return rank - 1 if isinstance(op, MatMul) else 1


def is_window(op: Product, i: int, kind: TensorType, rank: int) -> bool:
    """Whether bricks of an output of this rank differ in what they read of input `i`."""
    if i < op.main:
        return i == 0 or (i == 1 and isinstance(op, MatMul) and any(e > 1 for e in kind.shape[:-2]))
    channels = channels_of(op, rank)
    return any(e > 1 and axis != channels for axis, e in enumerate(kind.shape, rank - kind.rank))


def window(op: Product, i: int, kind: TensorType, boxes: Boxes) -> Boxes:
    """What boxes of the output read of input `i`, also beyond its ends; of an epilogue's operands where they broadcast
    the one element."""
    if i == 0 and not isinstance(op, MatMul):
        lo, hi = reach(op, boxes.lo[:, 2:], boxes.hi[:, 2:])
        n = len(boxes)
        return Boxes(columns(n, boxes.lo[:, 0], [0], lo), columns(n, boxes.hi[:, 0], [kind.shape[1]], hi))
    lo, hi = (part[:, boxes.rank - kind.rank :].copy() for part in (boxes.lo, boxes.hi))
    if i < 2:
        whole = kind.rank - 1 - i  # columns of the first factor; both dimensions of the second
        lo[:, whole:], hi[:, whole:] = 0, kind.shape[whole:]
    one = np.asarray(kind.shape, np.int64) == 1
    return Boxes(np.where(one, 0, lo), np.where(one, 1, hi))


def reach(op: Conv | ConvTranspose, lo: np.ndarray, hi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ranges that ranges of the output read, [n, spatial], also beyond the ends of the input; those of a transposed
    convolution begin with a multiple of its strides, padding included."""
    if isinstance(op, Conv):
        return op.window.reach(lo, hi)
    before = (np.asarray(op.window.spans) - 1) // op.strides
    return (lo + op.pads) // op.strides - before, (hi - 1 + op.pads) // op.strides + 1
