"""Computes bricks band by band: a few rows at a time, and of every tensor before them only rows that are new.

Two 3×3 layers, a brick of six rows in bands of two, a line per row:

    band 0   output 0 1      layer before 0 1 2      of that nothing is kept yet
    band 1   output 2 3      layer before 3 4        rows 1 and 2 are kept
    band 2   output 4 5      layer before 5 6        rows 3 and 4 are kept

Nothing is computed twice inside a brick, however few of its rows fast memory holds.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from brickrt.graph.ir import Graph
from brickrt.ops.types import Boxes, Shape
from brickrt.plan.geometry.halo import NO_BLOCKS, whole_blocks

CARRIED = 4  # a buffer of rows holds so many times what it keeps besides a band, so that rows move rarely
_NO_ROW = np.iinfo(np.int64).max


@dataclass(frozen=True)
class HeldRows:
    """The rows of one tensor that each band computes and has in memory, int64 [bricks, bands].

    A band computes the rows [lo, hi). While it runs, the rows [keep, hi) are held: all that it or a later band reads.
    """

    keep: np.ndarray
    lo: np.ndarray
    hi: np.ndarray

    @property
    def before(self) -> np.ndarray:
        """End of the rows that earlier bands computed; `keep` for the first band."""
        return np.concatenate([self.keep[:, :1], self.hi[:, :-1]], axis=1)

    @property
    def window(self) -> np.ndarray:
        """Most rows held at a time, [bricks]."""
        return (self.hi - self.keep).max(axis=1, initial=0)

    @property
    def kept(self) -> np.ndarray:
        """Most rows that one band leaves to the next, [bricks]."""
        return np.maximum(self.before - self.keep, 0).max(axis=1, initial=0)

    @property
    def stored(self) -> np.ndarray:
        """Rows of storage, [bricks]: more than the window where rows must move, and no more than there are."""
        all_rows = (self.hi[:, -1:] - self.keep[:, :1]).max(axis=1, initial=0)
        return np.minimum(self.window + CARRIED * self.kept, all_rows)


class BandSweep:
    """The boxes that bands of n bricks need of each tensor, while nodes join a subgraph from its output backwards.

    `boxes` are the bands of the output, brick by brick, `bands` of each. A node may join once all its readers have.
    `through` names tensors that are parts of others: they are never stored, so that their readers read the tensor they
    are part of. Constants are left out. `blocks` is as in `halo.Demand`.
    """

    def __init__(
        self,
        graph: Graph,
        output: str,
        boxes: Boxes,
        bands: int,
        axis: int,
        through: Container[str],
        blocks: Mapping[str, int] = NO_BLOCKS,
    ) -> None:
        self.graph, self.bands, self.axis, self.through, self.blocks = graph, bands, axis, through, blocks
        self.needed: dict[str, Boxes] = {output: boxes}
        self.anywhere: set[str] = set()  # of which boxes read little, anywhere
        self.rows: dict[str, HeldRows] = {}
        self.ascends = True  # whether every band reads no less far than the one before
        self.bytes_known: dict[str, tuple[Boxes, bool, np.ndarray]] = {}  # of boxes and whether their rows are held

    def join(self, k: int) -> None:
        """Adds what node `k` reads to compute the new rows of its bands."""
        node = self.graph.nodes[k]
        ins, out = self.graph.ins(node), self.graph.out(node)
        self.rows[node.output] = self.held(node.output)
        boxes = self.needed[node.output] if node.output in self.through else self.computed(node.output)
        empty = boxes.empty[:, None] if boxes.some_empty else None
        self.anywhere.update(node.inputs[i] for i in node.op.anywhere)
        for i, name in enumerate(node.inputs):
            if name not in self.graph.constants:
                region = node.op.region(i, boxes, ins, out)
                if empty is not None:
                    region = Boxes(region.lo, np.where(empty, region.lo, region.hi))
                if name in self.blocks:
                    region = whole_blocks(region, self.blocks[name], ins[i].shape)
                self.needed[name] = region.union(self.needed[name]) if name in self.needed else region

    def held(self, name: str) -> HeldRows:
        """The rows of a tensor all of whose readers have joined."""
        boxes = self.needed[name]
        empty = (boxes.volumes == 0).reshape(-1, self.bands)
        lo, hi = (ends[:, self.axis].reshape(-1, self.bands) for ends in (boxes.lo, boxes.hi))
        later = np.minimum.accumulate(np.where(empty, _NO_ROW, lo)[:, ::-1], axis=1)[:, ::-1]
        self.ascends &= bool((empty | (lo == later)).all())
        reached = np.maximum.accumulate(np.where(empty, 0, hi), axis=1)
        before = np.concatenate([np.zeros_like(reached[:, :1]), reached[:, :-1]], axis=1)
        first = np.where(later[:, :1] == _NO_ROW, 0, later[:, :1])
        reached = np.where(reached == 0, first, reached)  # bands before the first that needs anything
        fresh = np.where(empty, reached, np.minimum(np.maximum(lo, before), reached))
        return HeldRows(np.minimum(later, reached), fresh, reached)

    def computed(self, name: str) -> Boxes:
        """The boxes that the bands compute of a tensor whose node has joined, [bricks · bands]."""
        rows = self.rows[name]
        return with_rows(self.needed[name], rows.lo, rows.hi, self.axis)

    def brick_boxes(self, name: str) -> Boxes:
        """The boxes that all bands of a brick need of a tensor, [bricks]."""
        boxes = self.needed[name]
        empty = (boxes.volumes == 0)[:, None]
        shape = len(boxes) // self.bands, self.bands, boxes.rank
        lo = np.where(empty, _NO_ROW, boxes.lo).reshape(shape).min(axis=1)
        hi = np.where(empty, 0, boxes.hi).reshape(shape).max(axis=1)
        return Boxes(np.minimum(lo, hi), hi)


def with_rows(boxes: Boxes, lo: np.ndarray, hi: np.ndarray, axis: int) -> Boxes:
    """The boxes with other ends along one axis."""
    ends = boxes.lo.copy(order="K"), boxes.hi.copy(order="K")
    ends[0][:, axis], ends[1][:, axis] = lo.reshape(-1), hi.reshape(-1)
    return Boxes(*ends)


def swept_axis(brick: Shape, band: Shape) -> int:
    """The axis along which a brick is cut in bands; 0 where it is not cut."""
    return next((axis for axis, (b, a) in enumerate(zip(brick, band, strict=True)) if a < b), 0)


def middle_bands(boxes: Boxes, rows: np.ndarray, axis: int) -> Boxes:
    """Two bands of `rows` rows in the middle of each box, one after the other; the first is empty where the box has
    only one band."""
    starts, ends = boxes.lo[:, axis], boxes.hi[:, axis]
    middle = starts + (ends - starts) // rows // 2 * rows
    lo = np.stack([np.maximum(middle - rows, starts), middle], axis=1)
    hi = np.stack([middle, np.minimum(middle + rows, ends)], axis=1)
    twice = Boxes(np.repeat(boxes.lo, 2, axis=0), np.repeat(boxes.hi, 2, axis=0))
    return with_rows(twice, lo, hi, axis)


def band_bytes(swept: BandSweep) -> np.ndarray:
    """Bytes that the second of two bands touches, of inner tensors what their buffers hold, [bricks]; none of tensors
    of which it reads little, anywhere."""
    total = np.zeros(len(next(iter(swept.needed.values()))) // 2, np.int64)
    for name, boxes in swept.needed.items():
        if name in swept.through or name in swept.anywhere:
            continue
        known = swept.bytes_known.get(name)
        if known is None or known[0] is not boxes or known[1] != (name in swept.rows):
            known = boxes, name in swept.rows, _band_bytes_of(swept, name)
            swept.bytes_known[name] = known  # most stay as they are when a further node joins
        total += known[2]
    return total


def _band_bytes_of(swept: BandSweep, name: str) -> np.ndarray:
    boxes = swept.needed[name]
    all_extents = boxes.extents
    extents = all_extents.reshape(len(boxes) // 2, 2, boxes.rank).max(axis=1)
    if swept.axis < boxes.rank:
        extents[:, swept.axis] = all_extents[1::2, swept.axis]
    if name in swept.rows:
        held = swept.rows[name]
        kept = np.maximum(held.before - held.keep, 0)[:, 1]
        extents[:, swept.axis] = (held.hi - held.keep)[:, 1] + CARRIED * kept
    return extents.prod(axis=1) * swept.graph.types[name].dtype.itemsize


def buffer_extents(swept: BandSweep, name: str) -> Shape:
    """Extents of the buffer that holds a tensor's rows in any brick."""
    extents = swept.brick_boxes(name).extents.max(axis=0, initial=0)
    extents[swept.axis] = int(swept.rows[name].stored.max(initial=0))
    return tuple(int(e) for e in extents)


def bands_of(boxes: Boxes, band: int, count: int, axis: int) -> Boxes:
    """The boxes in `count` bands of `band` rows along an axis, box by box; the last bands are shorter, or empty."""
    each = Boxes(np.repeat(boxes.lo, count, axis=0), np.repeat(boxes.hi, count, axis=0))
    start = each.lo[:, axis] + np.tile(np.arange(count, dtype=np.int64), len(boxes)) * band
    top = each.hi[:, axis]
    return with_rows(each, np.minimum(start, top), np.minimum(start + band, top), axis)


def sweep(
    graph: Graph,
    nodes: Iterable[int],
    boxes: Boxes,
    band: int,
    axis: int,
    through: Container[str],
    blocks: Mapping[str, int] = NO_BLOCKS,
) -> BandSweep:
    """What a subgraph needs of each tensor to compute `boxes` of its output in bands of `band` rows.

    Boxes are one band each where some tensor is not read in ascending order, as when rows are reversed.
    """
    backwards, rows = sorted(nodes, reverse=True), int(boxes.extents[:, axis].max(initial=0))
    bands = max(1, -(-rows // band))
    output = graph.nodes[backwards[0]].output
    found = BandSweep(graph, output, bands_of(boxes, band, bands, axis), bands, axis, through, blocks)
    for k in backwards:
        found.join(k)
    return found if found.ascends else sweep(graph, backwards, boxes, rows, axis, through, blocks)
