"""What an order of tasks costs in memory: live bytes, reuse distances, and bytes moved at each level of caches.

A *piece* is what tasks read and write as a whole: a brick of a tensor, a weight. All figures come from the sequence of
accesses that an order gives: task after task, a task's reads before its writes. There is no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from brickrt.plan.geometry.bricks import ramps


@dataclass(frozen=True, eq=False)
class Pieces:
    """Piece numbers per task in CSR form: task t touches `ids[offsets[t]:offsets[t + 1]]`."""

    offsets: np.ndarray
    ids: np.ndarray


@dataclass(frozen=True)
class Level:
    """Bytes between a memory of `capacity` bytes and the next larger one: fetched into it, written back out of it."""

    capacity: int
    fetched: int
    written: int

    @property
    def moved(self) -> int:
        """Bytes in both directions."""
        return self.fetched + self.written


@dataclass(frozen=True, eq=False)
class Locality:
    """Figures of one order.

    `peak_live` is in bytes and counts intermediates, from first write to last read. What nobody writes belongs to
    the caller and is not counted; what nobody reads is a result and counts while it is written. A reuse distance is
    the bytes of different pieces touched since the piece was last touched, itself included: the smallest memory
    that would still hold it. `reuse_mean` is their mean over the `reread` bytes, those that are read again.
    """

    peak_live: int
    reuse_mean: float
    reread: int
    levels: dict[str, Level]


def simulate(
    order: np.ndarray,
    reads: Pieces,
    writes: Pieces,
    nbytes: np.ndarray,
    levels: Mapping[str, int],
    stands_for: np.ndarray | None = None,
) -> Locality:
    """Figures of running tasks in `order`. `nbytes` is the size of each piece, `levels` capacities in bytes by name.

    A level keeps the pieces used last that fit into it together (LRU, fully associative, whole pieces). A write
    needs no fetch. A written piece goes out once if it has to make room before its last read, or if nobody reads it.
    Exact, in O(a log a) NumPy operations for a accesses.

    Where only some pieces are given, `stands_for` says for how many each stands, itself included: others like it, which
    are touched about when it is. It is as large as itself, and makes as much room necessary as all of them.
    """
    step, piece, is_write = _accesses(order, reads, writes)
    size = np.asarray(nbytes, np.int64)
    count = np.ones(len(size)) if stands_for is None else np.asarray(stands_for, np.float64)
    every = np.rint(size * count).astype(np.int64)
    distance = _stack_distances(_previous(piece), every[piece])
    distance = np.where(distance >= 0, distance - (every - size)[piece], -1)
    again = ~is_write & (distance >= 0)
    reread = every[piece[again]]
    return Locality(
        peak_live=_peak_live(step, piece, is_write, every, len(order)),
        reuse_mean=float(np.average(distance[again], weights=reread)) if reread.any() else 0.0,
        reread=int(reread.sum()),
        levels={name: _traffic(piece, is_write, distance, every, capacity) for name, capacity in levels.items()},
    )


def _accesses(order: np.ndarray, reads: Pieces, writes: Pieces) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The accesses in time: (place of the task in the order, piece, whether it is a write)."""
    parts = [_gather_rows(reads, order), _gather_rows(writes, order)]
    step = np.concatenate([np.repeat(np.arange(len(order)), lengths) for lengths, _ in parts])
    piece = np.concatenate([ids for _, ids in parts]).astype(np.int64)
    is_write = np.repeat([False, True], [len(ids) for _, ids in parts])
    time = np.argsort(step, kind="stable")
    return step[time], piece[time], is_write[time]


def _gather_rows(csr: Pieces, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The given rows of a CSR list, one after the other: (lengths, values)."""
    lengths = np.diff(csr.offsets)[rows]
    return lengths, csr.ids[np.repeat(csr.offsets[rows], lengths) + ramps(lengths)]


def _previous(piece: np.ndarray) -> np.ndarray:
    """For each access the place of the access before to the same piece, -1 for the first."""
    by_piece = np.argsort(piece, kind="stable")
    same = piece[by_piece[1:]] == piece[by_piece[:-1]]
    previous = np.full(len(piece), -1, np.int64)
    previous[by_piece[1:][same]] = by_piece[:-1][same]
    return previous


def _stack_distances(previous: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Bytes of different pieces from the access before, at p, to this one, itself included; -1 for first accesses.

    Each piece in between is counted at its first access after p, one whose own predecessor lies at or before p.
    All accesses up to p have that too, so the bytes sought are a sum over everything earlier less a prefix sum.
    """
    rank = np.empty(len(previous), np.int64)
    rank[np.argsort(previous, kind="stable")] = np.arange(len(previous))
    through = np.cumsum(size)
    distance = _sums_of_earlier_and_lower(rank, size) - through[previous] + size
    return np.where(previous >= 0, distance, -1)


def _sums_of_earlier_and_lower(rank: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """For each i the sum of weight[j] over j < i with rank[j] < rank[i]; `rank` is a permutation.

    A stable radix sort from the highest bit down. Ranks equal in all higher bits form a group, contiguous and in the
    order of i. Any two ranks part at exactly one bit; there the one with the bit set takes the weight of the other
    if that comes earlier. Because ranks are a permutation, every group but the last has `half` members of each kind.
    """
    n = len(rank)
    ranks, sums = rank, np.zeros(n, np.int64)
    for bit in reversed(range(max(n - 1, 0).bit_length())):
        half = 1 << bit
        is_high = ranks & half != 0
        low, high = np.flatnonzero(~is_high), np.flatnonzero(is_high)
        before = np.concatenate([[0], np.cumsum(weight[low])])
        sums[high] += before[high - np.arange(len(high))] - np.repeat(before[::half], half)[: len(high)]
        full = n // (2 * half) * half
        pairs = np.stack([low[:full].reshape(-1, half), high[:full].reshape(-1, half)], axis=1)
        parted = np.concatenate([pairs.ravel(), low[full:], high[full:]])
        ranks, weight, sums = ranks[parted], weight[parted], sums[parted]
    return sums[rank]


def _peak_live(step: np.ndarray, piece: np.ndarray, is_write: np.ndarray, size: np.ndarray, steps: int) -> int:
    first, last = np.full(len(size), steps, np.int64), np.full(len(size), -1, np.int64)
    np.minimum.at(first, piece[is_write], step[is_write])
    np.maximum.at(last, piece, step)
    written = np.flatnonzero(first < steps)
    change = np.zeros(steps + 1, np.int64)
    np.add.at(change, first[written], size[written])
    np.add.at(change, last[written] + 1, -size[written])
    return int(np.cumsum(change).max())


def _traffic(piece: np.ndarray, is_write: np.ndarray, distance: np.ndarray, size: np.ndarray, capacity: int) -> Level:
    """Groups accesses into versions of pieces: a write and the reads that follow it, or reads of the caller's data."""
    missed = ~is_write & ((distance < 0) | (distance > capacity))
    by_piece = np.argsort(piece, kind="stable")
    new_piece = np.diff(piece[by_piece], prepend=-1) != 0
    starts = np.flatnonzero(new_piece | is_write[by_piece])
    is_last = np.append(new_piece[starts[1:]], True)[: len(starts)]
    never_read = np.diff(starts, append=len(piece)) == 1
    went_out = np.logical_or.reduceat(missed[by_piece], starts)
    versions = by_piece[starts]
    leaving = versions[is_write[versions] & (went_out | (is_last & never_read))]
    return Level(capacity, int(size[piece[missed]].sum()), int(size[piece[leaving]].sum()))
