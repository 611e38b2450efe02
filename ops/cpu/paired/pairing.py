"""Which elements of K are paired, and with which sign: a pattern that repeats along K.

PAIRS names the first of two elements that are paired, and their sign; others are multiplied as ever. Eleven
multiply-adds and ten additions do for sixteen multiply-adds. Pairs of both signs take turns, so that what they add too
much nearly cancels, also where all of a row is positive.

    s [+] s  s [-] s  s [+] s  [-] [+]      s: an element by itself
    0 1 2 3  4 5 6 7  8 9 . .  . .  . .
"""

from __future__ import annotations

import numpy as np

from brickrt.ops.cpu.strassen.sizes import WHOLE

PERIOD = WHOLE  # 16
PAIRS = {1: 1, 5: -1, 9: 1, 12: -1, 14: 1}
SIGNS = tuple(PAIRS.get(n, 0) for n in range(PERIOD))
# What tiles multiply one after another: multiply-adds and additions are never far apart
PARTS = ((0, 1), (3, 5), (4, 9), (7, 12), (8, 11, 14))
LEFT = 1 - len(PAIRS) / PERIOD  # of the multiplications


def elements(part: tuple[int, ...]) -> list[int]:
    """All elements of a part of PARTS."""
    return [n + more for n in part for more in ((0, 1) if SIGNS[n] else (0,))]


def pair_products(b: np.ndarray) -> np.ndarray:
    """The sums of the products of the pairs of the columns of `b` [K, N], times their signs: float32 [N]."""
    periods = b.reshape(-1, PERIOD, b.shape[1]).astype(np.float64)
    signed = np.array(list(PAIRS.values()), np.float64)
    products = periods[:, list(PAIRS)] * periods[:, [n + 1 for n in PAIRS]]
    return np.einsum("kpn,p->n", products, signed).astype(np.float32)
