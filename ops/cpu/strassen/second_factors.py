"""The second factors of Strassen's scheme, which are packed with the constant matrix."""

from __future__ import annotations

import numpy as np


def column_sizes(b: np.ndarray) -> np.ndarray:
    """Powers of two between which and their doubles lie the largest magnitudes of the columns of `b` [K, N], float32
    [N]: columns divided by them can be added to each other without a loss. 0 for columns of zeros.

    Outside scaling of G. Ballard et al., "Improving the numerical stability of fast matrix multiplication", SIAM J.
    Matrix Anal. Appl. 37, 2016.
    """
    largest = np.maximum(b.max(axis=0, initial=0), -b.min(axis=0, initial=0))
    _, exponents = np.frexp(np.where(np.isfinite(largest), largest, 1))
    return np.where(largest > 0, np.ldexp(np.float32(1), exponents - 1), 0).astype(np.float32)


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
