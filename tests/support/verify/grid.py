"""Boxes of one tensor cut along common lines, so that what overlaps has cells in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.ops.types import Boxes
from brickrt.plan.geometry.bricks import ramps


@dataclass(frozen=True, eq=False)
class Grid:
    """Cells between `cuts` along each axis, ascending; `cell` has that of each index before the last cut."""

    cuts: tuple[np.ndarray, ...]
    cell: tuple[np.ndarray, ...]

    @staticmethod
    def of(boxes: Boxes, shape: Sequence[int]) -> Grid:
        """The grid of a tensor of this shape, cut where boxes inside of it begin or end."""
        flags = [np.zeros(extent + 1, bool) for extent in shape]
        for flag, lo, hi in zip(flags, boxes.lo.T, boxes.hi.T, strict=True):
            flag[lo] = flag[hi] = True
        return Grid(tuple(map(np.flatnonzero, flags)), tuple(np.cumsum(flag) - 1 for flag in flags))

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return tuple(len(cuts) - 1 for cuts in self.cuts)

    def __len__(self) -> int:
        return math.prod(self.shape)

    def spans(self, extents: Sequence[int]) -> bool:
        """Whether the cells are all of a tensor."""
        return all(cuts[0] == 0 and cuts[-1] == extent for cuts, extent in zip(self.cuts, extents, strict=True))

    def covering(self, boxes: Boxes) -> tuple[np.ndarray, np.ndarray]:
        """The cells that share elements with each box, none of which is empty: which box each is of, and its number."""
        number, of, counts = np.zeros(len(boxes), np.int64), np.arange(len(boxes)), list[np.ndarray]()
        for cell, cells, lo, hi in zip(self.cell, self.shape, boxes.lo.T, boxes.hi.T, strict=True):
            low = cell[lo]
            counts.append(cell[hi - 1] + 1 - low)
            number = number * cells + low
        for axis, count in enumerate(counts):
            if (count > 1).any():
                more = count[of]
                number = np.repeat(number, more) + ramps(more) * math.prod(self.shape[axis + 1 :])
                of = np.repeat(of, more)
        return of, number


def owners(grid: Grid, boxes: Boxes) -> tuple[np.ndarray, np.ndarray]:
    """How many boxes have each cell, and the number of the last that does."""
    of, cells = grid.covering(boxes)
    owner = np.full(len(grid), -1, np.int64)
    owner[cells] = of
    return np.bincount(cells, minlength=len(grid)), owner
