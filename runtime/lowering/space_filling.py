"""Orders of a brick grid in which bricks visited soon after each other lie near each other.

Each function takes the grid shape, of any extents, and returns the brick numbers (row-major) in order of visit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def snake(shape: Sequence[int]) -> np.ndarray:
    """Row by row, every other row backwards: each step goes to an adjacent brick."""
    visit = np.arange(math.prod(shape), dtype=np.int64)
    number = np.zeros_like(visit)
    inner = len(visit)
    for extent in shape:
        inner //= max(extent, 1)
        rows, at = np.divmod(visit // max(inner, 1), max(extent, 1))
        number = number * extent + np.where(rows % 2, extent - 1 - at, at)
    return number


def morton(shape: Sequence[int]) -> np.ndarray:
    """Z-order: along the interleaved bits of the coordinates."""
    coords, bits = _coordinates(shape)
    return np.argsort(_interleave(coords, bits), kind="stable")


def hilbert(shape: Sequence[int]) -> np.ndarray:
    """Hilbert's curve through the enclosing cube of a power of two, less what lies outside the grid.

    Every step goes to an adjacent brick where all extents (other than 1) are the same power of two.
    J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707 (2004).
    """
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
