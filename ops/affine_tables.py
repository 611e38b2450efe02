"""Tables of indices that are arithmetic: start + step · i instead of a look-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Affine:
    """Output index i reads input index start + step · i for lo ≤ i < hi, and nothing elsewhere."""

    start: int
    step: int
    lo: int
    hi: int


def affine_pieces(table: Sequence[int], most: int) -> tuple[Affine, ...] | None:
    """A table without -1 as at most so many pieces that are arithmetic, in order; None where it is no such.

    What reflects or repeats an edge is arithmetic beside and behind it.
    """
    entries = np.asarray(table, np.int64)
    if not len(entries) or entries.min() < 0:
        return None
    pieces, lo = list[Affine](), 0
    while lo < len(entries):
        if len(pieces) == most:
            return None
        step = int(entries[lo + 1] - entries[lo]) if lo + 1 < len(entries) else 1
        (other,) = np.nonzero(np.diff(entries[lo:]) != step)
        hi = lo + 1 + int(other[0]) if len(other) else len(entries)
        pieces.append(Affine(int(entries[lo]) - step * lo, step, lo, hi))
        lo = hi
    return tuple(pieces)


def period(table: Sequence[int] | None) -> int:
    """The n > 1 of a table 0, 1, … n - 1 that is there several times; 0 of others."""
    entries = np.asarray(table if table is not None else (), np.int64)
    (begins,) = np.nonzero(entries == 0)
    n = int(begins[1]) if len(begins) > 1 else 0
    if n < 2 or len(entries) % n or begins[0]:
        return 0
    return n if (entries.reshape(-1, n) == np.arange(n)).all() else 0


def affine(table: Sequence[int] | None, extent: int) -> Affine | None:
    """The table of an axis of `extent` outputs as arithmetic; None where it is not.

    Entries of -1, which read nothing, may stand at both ends. No table (None) is the identity.
    """
    if table is None:
        return Affine(0, 1, 0, extent)
    entries = np.asarray(table, np.int64)
    (reads,) = np.nonzero(entries >= 0)
    if not len(reads):
        return Affine(0, 1, 0, 0)
    lo, hi = int(reads[0]), int(reads[-1]) + 1
    steps = np.diff(entries[lo:hi])
    step = int(steps[0]) if len(steps) else 1
    if (steps != step).any() or (entries[lo:hi] < 0).any():
        return None
    return Affine(int(entries[lo]) - step * lo, step, lo, hi)
