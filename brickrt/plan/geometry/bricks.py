"""Bricks of a tensor: the grid they form, and which of them a box touches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brickrt.ops.types import Boxes, Shape

SAMPLED_ENDS, SAMPLED_MIDDLE = 8, 16  # bricks along an axis that stand for all, where there are more
MOST_EDGES = 512  # of one axis that are tried


def ramps(counts: np.ndarray) -> np.ndarray:
    """0, 1, … c-1 for every c of `counts`, one after the other: positions inside the rows of a CSR list."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0, dtype=np.int64) - np.repeat(ends - counts, counts)


def row_offsets(counts: np.ndarray) -> np.ndarray:
    """CSR offsets, int64 [n + 1], of n rows with these lengths."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def brick_count(shape: Shape, brick: Shape) -> int:
    """How many bricks of these edges cover a shape."""
    return math.prod(-(-extent // edge) for extent, edge in zip(shape, brick, strict=True))


@dataclass(frozen=True)
class BrickGrid:
    """A tensor of `shape`, or the box of one that begins at `origin`, cut into bricks of shape `brick`.

    Bricks are numbered row-major. A dimension of extent 0 has no bricks; a tensor of rank 0 is one brick.
    """

    shape: Shape
    brick: Shape
    origin: Shape = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(extent) for extent in self.shape))
        object.__setattr__(self, "brick", tuple(int(edge) for edge in self.brick))
        object.__setattr__(self, "origin", tuple(int(start) for start in self.origin) or (0,) * len(self.shape))
        if len(self.shape) != len(self.brick):
            raise ValueError(f"brick {self.brick} and tensor shape {self.shape} differ in rank: give one edge per axis")
        if min(self.brick, default=1) < 1:
            raise ValueError(f"brick {self.brick} has an edge below 1: every edge must be at least 1")

    @staticmethod
    def of_box(box: Boxes, brick: Shape) -> BrickGrid:
        """The grid of a single box; bricks are no longer than it."""
        edges = tuple(max(1, min(edge, int(extent))) for edge, extent in zip(brick, box.extents[0], strict=True))
        return BrickGrid(tuple(box.extents[0].tolist()), edges, tuple(box.lo[0].tolist()))

    @cached_property
    def grid(self) -> Shape:
        """Bricks along each axis."""
        return tuple(-(-extent // edge) for extent, edge in zip(self.shape, self.brick))

    @property
    def rank(self) -> int:
        """Dimensions of the tensor."""
        return len(self.shape)

    def __len__(self) -> int:
        return math.prod(self.grid)

    def boxes(self) -> Boxes:
        """The boxes of all bricks, in brick order; the last brick of an uneven axis is shorter."""
        lo = np.indices(self.grid, np.int64).reshape(self.rank, len(self)).T * np.asarray(self.brick, np.int64)
        hi = np.minimum(lo + np.asarray(self.brick, np.int64), np.asarray(self.shape, np.int64))
        origin = np.asarray(self.origin, np.int64)
        return Boxes(lo + origin, hi + origin)

    def sample(self) -> tuple[Boxes, np.ndarray]:
        """Boxes of bricks that stand for all, and for how many each does, float64 [n]: along axes of many bricks some
        at both ends and some in the middle."""
        picked, times = zip(*(_sampled(count) for count in self.grid)) if self.grid else ((), ())
        at = np.stack(np.meshgrid(*picked, indexing="ij"), axis=-1) if picked else np.zeros((1, 0), np.int64)
        edges, shape = np.asarray(self.brick, np.int64), np.asarray(self.shape, np.int64)
        lo, origin = at.reshape(-1, self.rank) * edges, np.asarray(self.origin, np.int64)
        weights = np.ones(1)
        for one in times:
            weights = (weights[:, None] * one).reshape(-1)
        return Boxes(lo + origin, np.minimum(lo + edges, shape) + origin), weights

    def index(self, coords: np.ndarray | Sequence[int]) -> np.ndarray:
        """Brick numbers of grid coordinates [..., d]. Raises ValueError for coordinates outside the grid."""
        at = np.asarray(coords, np.int64)
        if at.shape[-1:] != (self.rank,) or ((at < 0) | (at >= np.asarray(self.grid, np.int64))).any():
            raise ValueError(f"brick coordinates {at.tolist()} are outside the grid {self.grid}")
        number = np.zeros(at.shape[:-1], np.int64)
        for axis, count in enumerate(self.grid):
            number = number * count + at[..., axis]
        return number

    def covering(self, boxes: Boxes) -> tuple[np.ndarray, np.ndarray]:
        """The bricks that share elements with each of n boxes, as CSR lists (offsets [n + 1], brick numbers).

        Numbers ascend within a list. What of a box lies outside the tensor touches nothing; nor does an empty box.
        """
        first, spans = self._spans(boxes)
        counts = spans.prod(axis=1)
        owner = np.flatnonzero(counts)
        bricks = np.zeros(len(owner), np.int64)
        for axis, count in enumerate(self.grid):
            if count == 1:  # most axes are not cut
                continue
            span = spans[owner, axis]
            bricks = bricks * count + first[owner, axis]
            if (span > 1).any():
                bricks = np.repeat(bricks, span) + ramps(span)
                owner = np.repeat(owner, span)
        return row_offsets(counts), bricks

    def touched(self, boxes: Boxes) -> np.ndarray:
        """How many bricks share elements with each of n boxes, [n]."""
        return self._spans(boxes)[1].prod(axis=1)

    def _spans(self, boxes: Boxes) -> tuple[np.ndarray, np.ndarray]:
        """Per box and axis the first brick that it meets, and how many, [n, d] each."""
        origin = np.asarray(self.origin, np.int64)
        moved = Boxes(boxes.lo - origin, boxes.hi - origin) if any(self.origin) else boxes
        inside = moved.clip(self.shape)
        edges = np.asarray(self.brick, np.int64)
        first = inside.lo // edges
        return first, np.where(inside.volumes[:, None] > 0, -(-inside.hi // edges) - first, 0)


def _sampled(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of so many bricks along an axis, and how many others each stands for beside itself, and itself."""
    if count <= 2 * SAMPLED_ENDS + SAMPLED_MIDDLE:
        return np.arange(count, dtype=np.int64), np.ones(count)
    middle = (count - SAMPLED_MIDDLE) // 2
    ends = np.arange(SAMPLED_ENDS, dtype=np.int64)
    found = np.concatenate([ends, middle + np.arange(SAMPLED_MIDDLE), count - SAMPLED_ENDS + ends])
    times = np.ones(len(found))
    times[SAMPLED_ENDS:-SAMPLED_ENDS] = (count - 2 * SAMPLED_ENDS) / SAMPLED_MIDDLE
    return found, times


def even_edges(extent: int, unit: int, most: int) -> list[int]:
    """Edges that cut an extent in 1, 2, … `most` pieces of about equal length, in multiples of `unit`; of so many that
    they hardly differ, some."""
    units = -(-extent // unit)
    edges = sorted({min(extent, (share + 1) * unit) for share in quotients(units - 1, 1, min(most, max(units, 1)))})
    if len(edges) <= MOST_EDGES:
        return edges
    return [edges[at] for at in np.unique(np.geomspace(1, len(edges), MOST_EDGES).astype(np.int64) - 1).tolist()]


def quotients(total: int, first: int, last: int) -> Iterator[int]:
    """What `total` divided by `first`, … `last` gives, rounded down, each number once, largest first."""
    by = first
    while by <= last:
        share = total // by
        yield share
        by = total // share + 1 if share > 0 else last + 1
