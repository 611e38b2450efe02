"""The second factors of Strassen's scheme, which are packed with the constant matrix."""

from __future__ import annotations

import numpy as np


def second_factors(b: np.ndarray, levels: int) -> np.ndarray:
    """[chunks, K/chunks, groups, columns of a group] → [products of the last level, …, products of the first, chunks,
    K/chunks/2**levels, groups, columns of a tile], in the order in which the kernels multiply."""
    for _ in range(levels):
        *outer, depth, groups, width = b.shape
        quarters = b.reshape(*outer, 2, depth // 2, groups, 2, width // 2)
        b11, b12, b21, b22 = (quarters[..., k, :, :, n, :] for k in (0, 1) for n in (0, 1))
        t1 = b12 - b11
        t2 = b22 - t1
        b = np.stack([b11, b21, t2, b22 - b12, b21 - t2, t1, b22])
    return b
