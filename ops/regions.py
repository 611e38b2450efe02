"""Helpers for the region maps of operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from brickrt.ops.types import Boxes, Shape, broadcast_region


def box_shape(box: Boxes) -> Shape:
    """Extents of box 0."""
    return tuple(int(e) for e in box.extents[0])


def settle(boxes: Boxes, lo: np.ndarray, hi: np.ndarray, shape: Sequence[int]) -> Boxes:
    """Ranges [lo, hi) as boxes of an operand of `shape`: clipped to it, and empty where the output's box is."""
    if boxes.some_empty:
        hi = np.where(boxes.empty[:, None], lo, hi)
    return Boxes(lo, hi).clip(shape)


def window_region(
    boxes: Boxes, reach: tuple[np.ndarray, np.ndarray], channels: tuple[np.ndarray | int, np.ndarray | int]
) -> tuple[np.ndarray, np.ndarray]:
    """The ranges of an input [N, C, spatial…] that windows read for boxes of the output: images as those of the boxes,
    ranges of `channels`, and the `reach` of the windows along the others. Columns lie together in memory."""
    lo, hi = np.empty((2, boxes.rank, len(boxes)), np.int64).transpose(0, 2, 1)
    lo[:, 0], hi[:, 0] = boxes.lo[:, 0], boxes.hi[:, 0]
    lo[:, 1], hi[:, 1] = channels
    lo[:, 2:], hi[:, 2:] = reach
    return lo, hi


def operand_region(boxes: Boxes, shape: Shape) -> Boxes:
    """The region of an operand that broadcasts to the output; empty where the output's box is."""
    region = broadcast_region(boxes, shape)
    return settle(boxes, region.lo, region.hi, shape)


def columns(n: int, *parts: np.ndarray | Sequence[int]) -> np.ndarray:
    """[n, d] from columns: arrays [n] or [n, k], or constants repeated for all n boxes. Columns lie together in memory,
    as those of `Boxes.copies` do."""
    blocks = []
    for part in parts:
        array = np.asarray(part, np.int64)
        one = isinstance(part, np.ndarray) and array.ndim == 1
        blocks.append(array[:, None] if one else array if array.ndim == 2 else array.reshape(1, -1))
    found, at = np.empty((sum(block.shape[1] for block in blocks), n), np.int64).T, 0
    for block in blocks:
        found[:, at : at + block.shape[1]] = block
        at += block.shape[1]
    return found


BLOCK = 64  # entries of a table whose minima from both ends are kept


class RangeMin:
    """The minimum over many index ranges of a fixed array at once: O(1) per range, and little more than the array in
    memory. Blocks that lie whole in a range are looked up in a sparse table, which has a level per power of two; of the
    first and the last block the minima up to their ends are known."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, most = values, values.max(initial=0)
        blocks = np.concatenate([values, np.full(-len(values) % BLOCK, most, values.dtype)]).reshape(-1, BLOCK)
        self.before = np.minimum.accumulate(blocks, axis=1).reshape(-1)  # from the block's beginning to each entry
        self.behind = np.minimum.accumulate(blocks[:, ::-1], axis=1)[:, ::-1].reshape(-1)
        levels, width = [blocks.min(axis=1, initial=most)], 1
        while 2 * width <= len(levels[0]):
            below = levels[-1]
            levels.append(np.concatenate([np.minimum(below[:-width], below[width:]), below[-width:]]))
            width *= 2
        self.levels = np.stack(levels)

    def __call__(self, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
        """Minima over [lo, hi), all of them non-empty and in range."""
        first, last = lo // BLOCK, (hi - 1) // BLOCK
        found = np.minimum(self.behind[lo], self.before[hi - 1])
        inner = np.flatnonzero(last - first > 1)
        found[inner] = np.minimum(found[inner], self._blocks(first[inner] + 1, last[inner]))
        alone = np.flatnonzero(first == last)
        found[alone] = self._inside(lo[alone], hi[alone])
        return found

    def _blocks(self, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
        """Minima over whole blocks [lo, hi)."""
        level = np.frexp((hi - lo).astype(np.float64))[1] - 1
        return np.minimum(self.levels[level, lo], self.levels[level, hi - (1 << level.astype(np.int64))])

    def _inside(self, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
        """Minima over ranges inside of one block each."""
        at = np.minimum(lo[:, None] + np.arange(BLOCK), hi[:, None] - 1)
        return self.values[at].min(axis=1, initial=self.values.max(initial=0))


class TableRange:
    """Per range [lo, hi) of outputs, the smallest input range around [least[i], most[i]] of all its i.

    least > most marks an output that reads nothing; `extent` is the size of the axis that is read. A range that reads
    nothing comes back empty. Tables that ascend from the first to the last output that reads are looked up at the ends.
    """

    def __init__(self, least: np.ndarray, most: np.ndarray, extent: int) -> None:
        self.least, self.most, self.extent = least, most, extent
        reads = np.flatnonzero(least <= most)
        self.begin, self.end = (int(reads[0]), int(reads[-1]) + 1) if len(reads) else (0, 0)
        inside = slice(self.begin, self.end)
        ascend = all(bool((np.diff(values[inside]) >= 0).all()) for values in (least, most))
        self.ascends = ascend and len(reads) == self.end - self.begin

    def __call__(self, lo: np.ndarray, hi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the input ranges begin and end."""
        if self.begin == self.end:
            return np.zeros_like(lo), np.zeros_like(lo)
        start, stop = np.maximum(lo, self.begin), np.minimum(hi, self.end)
        nothing = stop <= start
        start = np.clip(start, self.begin, self.end - 1)
        first, last = self._around(start, np.maximum(stop, start + 1))
        nothing |= last < first
        return np.where(nothing, 0, first), np.where(nothing, 0, last + 1)

    def _around(self, start: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The least and the greatest entry of each range."""
        if self.ascends:
            return self.least[start], self.most[stop - 1]
        first, last = self._ends
        return first(start, stop), -last(start, stop)

    @cached_property
    def _ends(self) -> tuple[RangeMin, RangeMin]:
        """The least of all entries, and the greatest with its sign changed."""
        reads = self.least <= self.most
        return RangeMin(np.where(reads, self.least, self.extent)), RangeMin(np.where(reads, -self.most, 1))
