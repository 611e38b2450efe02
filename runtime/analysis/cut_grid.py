"""A tensor cut along each axis, at places of any distance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from brickrt.ops.types import Boxes, Shape
from brickrt.plan.geometry.bricks import BrickGrid

MOST_PIECES = 1 << 16  # of a tensor: cuts are left out where there would be more


@dataclass(frozen=True, eq=False)
class CutGrid:
    """The pieces between `cuts`, ascending along each axis from 0 to the extent, numbered in row-major order."""

    cuts: tuple[np.ndarray, ...]

    @staticmethod
    def of(shape: Shape, boxes: Sequence[Boxes]) -> CutGrid:
        """Cut wherever one of the boxes begins or ends; where these are too many places, at some of them."""
        cuts = tuple(
            _cuts(extent, [some for b in boxes for some in (b.lo[:, d], b.hi[:, d])]) for d, extent in enumerate(shape)
        )
        while _count(cuts) > MOST_PIECES:
            most = max(range(len(cuts)), key=lambda d: len(cuts[d]))
            cuts = tuple(np.append(c[:-1:2], c[-1]) if d == most else c for d, c in enumerate(cuts))
        return CutGrid(cuts)

    def __len__(self) -> int:
        return _count(self.cuts)

    @property
    def volumes(self) -> np.ndarray:
        """Elements of each piece."""
        edges = [np.diff(cut) for cut in self.cuts]
        return reduce(np.multiply.outer, edges, np.ones((), np.int64)).reshape(-1).astype(np.int64)

    def touched(self, boxes: Boxes) -> np.ndarray:
        """How many pieces share elements with each of n boxes, [n]."""
        return self._places.touched(self._placed(boxes))

    def covering(self, boxes: Boxes) -> tuple[np.ndarray, np.ndarray]:
        """The pieces that share elements with each of n boxes, as CSR lists (offsets [n + 1], piece numbers)."""
        return self._places.covering(self._placed(boxes))

    @cached_property
    def _places(self) -> BrickGrid:
        """The pieces as bricks of one element each."""
        counts = tuple(len(cut) - 1 for cut in self.cuts)
        return BrickGrid(counts, (1,) * len(counts))

    def _placed(self, boxes: Boxes) -> Boxes:
        """The boxes by the numbers of the pieces that they begin and end in."""
        lo, hi = np.zeros_like(boxes.lo), np.zeros_like(boxes.hi)
        for d, cut in enumerate(self.cuts):
            lo[:, d] = np.searchsorted(cut, boxes.lo[:, d], "right") - 1
            hi[:, d] = np.searchsorted(cut, boxes.hi[:, d], "left")
        empty = (boxes.hi <= boxes.lo).any(axis=1)
        hi[empty] = lo[empty]
        return Boxes(lo, hi)


def _cuts(extent: int, places: Sequence[np.ndarray]) -> np.ndarray:
    inside = np.unique(np.concatenate([np.array([0, extent], np.int64), *places]))
    return inside[(inside >= 0) & (inside <= extent)]


def _count(cuts: Sequence[np.ndarray]) -> int:
    return int(np.prod([len(cut) - 1 for cut in cuts], dtype=np.int64))
