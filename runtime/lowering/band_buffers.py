"""Scratch of padded bricks: where each band of a brick finds a tensor's rows, and which of them move between bands.

A tensor's rows lie in a linear buffer, one behind the other. When the next band's rows do not fit behind them, the rows
that later bands still read move to its front.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from brickrt.ops.types import Boxes
from brickrt.plan.geometry.row_bands import BandSweep, HeldRows, buffer_extents, with_rows


@dataclass(frozen=True)
class BandBuffer:
    """Scratch of one tensor: `extents` of its storage, and `origins`, the index of its first element in each band of
    each brick, int64 [bricks · bands, d].

    `moves` [bricks · bands] tells which bands begin with a move, and `moved` the boxes that move then.
    """

    extents: tuple[int, ...]
    origins: np.ndarray
    moves: np.ndarray
    moved: Boxes

    @property
    def before(self) -> np.ndarray:
        """The origins of the band before."""
        return np.roll(self.origins, 1, axis=0)


def band_buffer(swept: BandSweep, name: str) -> BandBuffer:
    """The buffer of a tensor that swept bricks compute and read."""
    held, whole, extents = swept.rows[name], swept.brick_boxes(name), buffer_extents(swept, name)
    first = _first_rows(held, extents[swept.axis])
    origins = np.repeat(whole.lo, swept.bands, axis=0)
    origins[:, swept.axis] = first.reshape(-1)
    moves = np.zeros_like(first, bool)
    moves[:, 1:] = (first[:, 1:] != first[:, :-1]) & (held.before > held.keep)[:, 1:]
    boxes = Boxes(*(np.repeat(ends, swept.bands, axis=0) for ends in (whole.lo, whole.hi)))
    moved = with_rows(boxes, held.keep, np.maximum(held.before, held.keep), swept.axis)
    return BandBuffer(extents, origins, moves.reshape(-1), moved)


def _first_rows(held: HeldRows, rows: int) -> np.ndarray:
    """The row at which storage of `rows` rows begins in each band, [bricks, bands]."""
    first = held.keep.copy()
    for band in range(1, first.shape[1]):
        before = first[:, band - 1]
        full = held.hi[:, band] - before > rows
        first[:, band] = np.where(full, held.keep[:, band], before)
    return first
