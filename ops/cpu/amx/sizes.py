"""Sizes of tile registers, and what the types of factors are in them. Plans know these; code is made elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.ops.operators.conv import ConvTranspose
from brickrt.ops.operators.product import Product
from brickrt.ops.operators.product_types import BF16, F16, F32, FACTORS

LANES = 16  # of a row of a tile that holds sums or words
ROWS, ROW_BYTES = 16, 64
TILE_BYTES = ROWS * ROW_BYTES
AREA_BYTES = 1 << 20  # of the workspace for what a chunk reads: with a stream of weights it fits L2
PLANE_PIXELS = 192  # of all planes of a chunk together, for which there is room
ASKS = 16
"""Times the pace at which weights of later kernels are asked for, in a step of a group of tiles."""


@dataclass(frozen=True)
class Factors:
    """`parts` of each element, each of `bytes` bytes; `order` has the parts of a pixel and of a weight whose products
    are summed, one after the other. Where parts are less than the element, the first is `rounded` to the nearest, so
    that errors are of either sign."""

    dtype: np.dtype
    instruction: str
    bytes: int
    order: tuple[tuple[int, int], ...] = ((0, 0),)
    rounded: bool = False

    @property
    def parts(self) -> int:
        """Parts of an element of the first factor."""
        return 1 + max(pixels for pixels, _ in self.order)

    @property
    def weight_parts(self) -> int:
        """Parts of an element of the second factor."""
        return 1 + max(weights for _, weights in self.order)

    @property
    def unit(self) -> int:
        """Elements of K that a tile holds of each part."""
        return ROW_BYTES // self.bytes


WORD = 4  # bytes whose products an instruction adds at once


def joins_taps(dtype: np.dtype, channels: int, kernel: Sequence[int], dilations: Sequence[int]) -> bool:
    """Whether a convolution of few channels sums all taps of a row of its window together (`variants/joined.py`)."""
    return dtype == FACTORS[0] and channels <= WORD and kernel[-1] > 1 and dilations[-1] == 1


def is_spread(op: ConvTranspose) -> bool:
    """Whether windows of a transposed convolution lie side by side, and fill its output (`spread.py`)."""
    plain = not any((*op.pads, *op.pads_end, *op.output_padding)) and set(op.dilations) <= {1}
    return plain and op.kernel == op.strides and op.groups == 1


BYTES = Factors(FACTORS[0], "tdpbusd", 1)
PAIRS = Factors(BF16, "tdpbf16ps", 2)
SPLIT = Factors(F32, "tdpbf16ps", 2, ((0, 2), (0, 1), (0, 0), (2, 0), (1, 0), (1, 1)))
HALVES = Factors(F32, "tdpbf16ps", 2, ((2, 0), (1, 0), (1, 1), (0, 1), (0, 0)))
HALF_PRODUCT = Factors(F32, "tdpbf16ps", 2, ((1, 0), (0, 0), (0, 1)), rounded=True)
FACTORS_OF = {FACTORS: BYTES, (BF16, BF16): PAIRS, (F32, F32): SPLIT, (F32, F16): HALVES}
"""By the types of both factors, which tiles multiply."""


def factors_of(op: Product, first: np.dtype, second: np.dtype) -> Factors:
    """What factors of these types are in tiles."""
    return HALF_PRODUCT if op.halves else FACTORS_OF[first, second]
