"""Which convolutions of integers have tiles of F(4, 3), and which weights keep their sums exact: what planners ask."""

from __future__ import annotations

import numpy as np

from brickrt.ops.cpu.winograd.axes import Axes

EDGE, TAPS = 4, 3  # of F(4, 3)
OUTPUT_BOUND = 1 << 25  # that outputs must be smaller than
GREATEST, LARGEST = 255, 128  # magnitudes of an input and of a weight


def has_integer_tiles(axes: Axes) -> bool:
    """Whether F(4, 3) is that of all tiled axes, without strides."""
    return all(axis.m == 1 or (axis.m, axis.r, axis.residues) == (EDGE, TAPS, 1) for axis in axes)


def sums_are_small(weights: np.ndarray) -> bool:
    """Whether no sum of products of inputs by these weights, int8 [M, C, taps…], leaves the range of exact outputs. Of
    weights that are not told, which repeat one element, it is as if they were the largest."""
    each = weights.size // max(1, len(weights))
    if GREATEST * LARGEST * each < OUTPUT_BOUND or each == 0:
        return True
    if not any(weights.strides):
        return False
    rows = weights.reshape(len(weights), -1)
    magnitudes = np.abs(rows).view(np.uint8).sum(axis=1, dtype=np.int64)  # of -128 too, which wraps to itself
    if GREATEST * int(magnitudes.max(initial=0)) < OUTPUT_BOUND:
        return True
    one_sign = (magnitudes + np.abs(rows.sum(axis=1, dtype=np.int64))) // 2  # the larger of both signs' sums
    return GREATEST * int(one_sign.max(initial=0)) < OUTPUT_BOUND
