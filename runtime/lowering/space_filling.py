"""An order of a brick grid in which bricks visited soon after each other lie near each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def hilbert(shape: Sequence[int]) -> np.ndarray:
    """The brick numbers (row-major) of a grid of any extents, in order of visit: Hilbert's curve through the enclosing
    cube of a power of two, less what lies outside the grid.

    Every step goes to an adjacent brick where all extents (other than 1) are the same power of two.
    J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707 (2004).
    """
    if sum(extent != 1 for extent in shape) < 2:  # along one axis the curve is straight
        return np.arange(math.prod(shape))
    coords, bits = _coordinates(shape)
    for bit in reversed(range(1, bits)):
        low = (1 << bit) - 1
        for axis in coords:
            flip = (axis >> bit) & 1 == 1
            swap = np.where(flip, 0, (coords[0] ^ axis) & low)
            coords[0] ^= np.where(flip, low, swap)
            axis ^= swap
    coords = np.bitwise_xor.accumulate(coords, axis=0)
    turn = np.zeros(coords.shape[1], np.int64)
    for bit in range(1, bits):
        turn ^= ((coords[-1:].sum(axis=0) >> bit) & 1) * ((1 << bit) - 1)
    return np.argsort(_interleave(coords ^ turn, bits), kind="stable")


def _coordinates(shape: Sequence[int]) -> tuple[np.ndarray, int]:
    """Coordinates of all bricks [d, n] along the axes longer than 1, and the bits that the longest one needs."""
    extents = [extent for extent in shape if extent != 1]
    bits = max((int(extent - 1).bit_length() for extent in extents), default=0)
    if bits * len(extents) > 63:
        raise ValueError(f"grid {tuple(shape)} is too long for a curve: {len(extents)} axes of {bits} bits exceed 63")
    return np.indices(extents, np.int64).reshape(len(extents), math.prod(extents)), bits


def _interleave(coords: np.ndarray, bits: int) -> np.ndarray:
    """One number per column: the highest bit of each row, then the next bit of each row, and so on."""
    key = np.zeros(coords.shape[1], np.int64)
    for bit in reversed(range(bits)):
        for axis in coords:
            key = key << 1 | (axis >> bit) & 1
    return key
