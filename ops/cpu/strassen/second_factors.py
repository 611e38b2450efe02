"""The second factors of Strassen's scheme, which are packed with the constant matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from brickrt.ops.cpu.strassen.sizes import PRODUCTS

Quarter = TypeVar("Quarter")


def column_sizes(b: np.ndarray) -> np.ndarray:
    """Powers of two between which and their doubles lie the largest magnitudes of the columns of `b` [K, N], float32
    [N]: columns divided by them can be added to each other without a loss. 0 for columns of zeros.

    Outside scaling of G. Ballard et al., "Improving the numerical stability of fast matrix multiplication", SIAM J.
    Matrix Anal. Appl. 37, 2016.
    """
    largest = np.maximum(b.max(axis=0, initial=0), -b.min(axis=0, initial=0))
    _, exponents = np.frexp(np.where(np.isfinite(largest), largest, 1))
    return np.where(largest > 0, np.ldexp(np.float32(1), exponents - 1), 0).astype(np.float32)


def second_factor(
    number: int, quarter: Callable[[int], Quarter], minus: Callable[[Quarter, Quarter], Quarter]
) -> Quarter:
    """What product `number` of the seven multiplies by, in the order in which the kernels multiply: a sum of some of
    the quarters B11, B12, B21, B22, which `quarter` gives by their numbers."""
    match number:
        case 0 | 1 | 6:
            return quarter({0: 0, 1: 2, 6: 3}[number])
        case 3:
            return minus(quarter(3), quarter(1))
        case 5:
            return minus(quarter(1), quarter(0))
    t2 = minus(quarter(3), second_factor(5, quarter, minus))
    return t2 if number == 2 else minus(quarter(2), t2)


def second_factors(b: np.ndarray, levels: int) -> np.ndarray:
    """[chunks, K/chunks, groups, columns of a group] → [products of the last level, …, products of the first, chunks,
    K/chunks/2**levels, groups, columns of a tile], in the order in which the kernels multiply."""
    for _ in range(levels):
        *outer, depth, groups, width = b.shape
        quarters = b.reshape(*outer, 2, depth // 2, groups, 2, width // 2)
        each = [quarters[..., k, :, :, n, :] for k in (0, 1) for n in (0, 1)]
        b = np.stack([second_factor(number, each.__getitem__, np.subtract) for number in range(PRODUCTS)])
    return b
