"""Rows and boxes by band, of which many are the same: each array of numbers is kept once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.ops.types import Boxes


@dataclass(frozen=True, slots=True)
class SweptRows:
    """Rows of one tensor, int64 [bands]: a band computes [lo, hi), and holds [keep, hi) while it runs. Of a tensor that
    is known whole, from a pass before, it computes none: all three are the first row that is still read."""

    keep: np.ndarray
    lo: np.ndarray
    hi: np.ndarray

    def after(self, bands: int) -> SweptRows:
        """The same without so many bands at the beginning."""
        return SweptRows(self.keep[bands:], self.lo[bands:], self.hi[bands:])

    @property
    def kept_after(self) -> np.ndarray:
        """First row that is held for the next band, [bands]; `hi` after the last."""
        return np.minimum(np.concatenate([self.keep[1:], self.hi[-1:]]), self.hi)

    def left_after(self, band: int) -> int:
        """The same for one band."""
        later = self.keep[band + 1] if band + 1 < len(self.keep) else self.hi[-1]
        return int(min(later, self.hi[band]))

    @property
    def fresh(self) -> int:
        """Most rows that a band computes."""
        return int((self.hi - self.lo).max(initial=0))

    @property
    def kept(self) -> int:
        """Most rows that one band leaves to the next."""
        return int((self.hi - self.kept_after).max(initial=0))

    @property
    def window(self) -> int:
        """Most rows held at a time."""
        return int((self.hi - self.keep).max(initial=0))


UNREAD = np.iinfo(np.int64).max  # a row behind all others: the first that is read where none is
MANY_BANDS = 64  # fewer have little to keep


class Columns:
    """Keeps arrays of numbers by band, each once: many tensors, and strips, have the same rows. Arrays of fewer bands
    than `least` stay as they are."""

    def __init__(self, least: int = MANY_BANDS) -> None:
        self.least = least
        self.known: dict[bytes, np.ndarray] = {}
        self.single: dict[int, np.ndarray] = {}

    def kept(self, values: np.ndarray) -> np.ndarray:
        """The values, [bands], or one where all are the same."""
        (column,) = self.each(values[:, None])
        return column

    def each(self, table: np.ndarray) -> tuple[np.ndarray, ...]:
        """The columns of a table, [bands] each, or of many bands one value where all are the same."""
        if len(table) < self.least:
            return tuple(table.T)
        first, moves = table[0].tolist(), np.logical_or.reduce(table != table[:1], axis=0).tolist()
        return tuple([self._once(table[:, k]) if differs else self._one(first[k]) for k, differs in enumerate(moves)])

    def _once(self, values: np.ndarray) -> np.ndarray:
        key = hashlib.blake2b(values.tobytes(), digest_size=16).digest()
        if key not in self.known:
            self.known[key] = values.copy()  # a view would keep all columns beside it
        return self.known[key]

    def _one(self, value: int) -> np.ndarray:
        if value not in self.single:
            self.single[value] = np.array([value], np.int64)
        return self.single[value]

    def whole(self, values: np.ndarray) -> np.ndarray:
        """The values, [bands], kept."""
        return values if len(values) < self.least else np.broadcast_to(self.kept(values), values.shape)

    def rows(self, rows: SweptRows) -> SweptRows:
        """The same rows, kept."""
        return SweptRows(*map(self.whole, (rows.keep, rows.lo, rows.hi)))


@dataclass(frozen=True, slots=True)
class BandBoxes:
    """A box of each of so many `bands`, an array for each axis and end."""

    bands: int
    lo: tuple[np.ndarray, ...]
    hi: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, boxes: Boxes, columns: Columns) -> BandBoxes:
        """The boxes, kept."""
        return cls(len(boxes), columns.each(boxes.lo), columns.each(boxes.hi))

    def all(self) -> Boxes:
        """All boxes."""
        lo, hi = (np.empty((self.bands, len(self.lo)), np.int64) for _ in "lh")
        for axis, (begin, end) in enumerate(zip(self.lo, self.hi, strict=True)):
            lo[:, axis], hi[:, axis] = begin, end
        return Boxes(lo, hi)

    def after(self, bands: int) -> BandBoxes:
        """The same without so many bands at the beginning."""
        lo, hi = (tuple(one[bands:] if len(one) > 1 else one for one in ends) for ends in (self.lo, self.hi))
        return BandBoxes(self.bands - bands, lo, hi)

    @property
    def elements(self) -> int:
        """Elements of all boxes together."""
        volumes = np.ones(1, np.int64)
        for begin, end in zip(self.lo, self.hi, strict=True):
            volumes = volumes * np.maximum(end - begin, 0)
        return int(volumes.sum()) * (self.bands if len(volumes) == 1 else 1)


def joined(parts: Sequence[Boxes]) -> Boxes:
    """The boxes of several parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return Boxes(np.concatenate([one.lo for one in parts]), np.concatenate([one.hi for one in parts]))


def box_around(boxes: Boxes, some: np.ndarray) -> Boxes:
    """The smallest box around some of all, [1]."""
    return boxes_around(boxes, some[None])


def boxes_around(boxes: Boxes, some: np.ndarray) -> Boxes:
    """The smallest boxes around some of the boxes of each part, [parts]: those of the first part come first. `some` is
    [parts, bands]. Where a part has none, an empty box."""
    lo, hi = (ends.reshape(*some.shape, boxes.rank) for ends in (boxes.lo, boxes.hi))
    if some.all():
        return Boxes(lo.min(axis=1), hi.max(axis=1))
    around = Boxes(
        np.where(some[..., None], lo, UNREAD).min(axis=1), np.where(some[..., None], hi, -UNREAD).max(axis=1)
    )
    none = ~some.any(axis=1)
    around.lo[none] = around.hi[none] = lo[none, 0]
    return around
