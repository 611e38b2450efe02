"""The places of elements in order, equal ones as they stand.

NumPy's stable sort compares floats one by one, its sort of integers has vectors: many floats are ordered as integers,
each with its place behind it.
"""

from __future__ import annotations

import numpy as np

WORD_SORT_ELEMENTS = 1 << 10
"""Elements from which on their words are sorted in less time than NumPy's stable sort takes."""


def ordered_places(rows: np.ndarray, largest: bool) -> np.ndarray:
    """The places of the elements of each row (the last axis), int64: the least first or, if `largest`, the greatest;
    the first of equal ones first. What is no number is greater than all."""
    many = rows.size >= WORD_SORT_ELEMENTS and rows.shape[-1] < 1 << 32
    if many and rows.dtype == np.float32 and not np.isnan(rows).any():
        return _by_words(rows, largest)
    if not largest:
        return rows.argsort(-1, kind="stable")
    return rows.shape[-1] - 1 - rows[..., ::-1].argsort(-1, kind="stable")[..., ::-1]


def _by_words(rows: np.ndarray, largest: bool) -> np.ndarray:
    """Order by words of 64 bits: those of the floats as an integer that is as great, above the place. Of floats below
    0, which are greater the smaller their bits are, all bits but the sign are turned over."""
    bits = (rows + np.float32(0)).view(np.int32)  # 0 is no greater than -0, which the sum makes of it
    bits ^= (bits >> 31) & 0x7FFFFFFF
    words = (~bits if largest else bits).astype(np.int64)
    words <<= 32
    words |= np.arange(rows.shape[-1])
    words.sort(-1)
    words &= 0xFFFFFFFF
    return words
