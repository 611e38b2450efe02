"""Checks of what a task reads and writes in its block's scratch: what it reads, it has written before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from brickrt.ops.types import Boxes
from tests.support.verify.access import TensorAccess, TensorHistory
from tests.support.verify.order import Order
from tests.support.verify.types import fail, first


def check_scratch(tensors: Sequence[TensorHistory], order: Order) -> None:
    """Tensors in scratch have memory of their own there while they live, in each task; launches with scratch that is
    not in shared memory run one by one."""
    found: dict[int, list[_Life]] = {}
    for tensor in tensors:
        held = ScratchContent.of(tensor)
        for access in tensor.reads:
            held.check(access)
        for launch in tensor.users.tolist():
            found.setdefault(launch, []).append(_Life.of(tensor, order, launch))
    for launch, some in found.items():
        for a, b in combinations(some, 2):
            if a.meets(b):
                fail(f"launch {launch} has '{a.tensor}' and '{b.tensor}' at the same place in scratch")
    shared = [launch for launch in sorted(found) if not order.tables.launches[launch].fused]
    order.check_chain(shared, "they use the same scratch")


@dataclass(frozen=True, eq=False)
class _Life:
    """Where a tensor lies in scratch, and the first and last step that touches it of each of `tasks`, of a launch."""

    tensor: str
    start: int
    end: int
    tasks: np.ndarray
    first: np.ndarray
    last: np.ndarray

    @staticmethod
    def of(tensor: TensorHistory, order: Order, launch: int) -> _Life:
        tasks, at, ends = [], [], []
        for access in tensor.all:
            mine = order.launch_of[access.steps.tasks] == launch
            tasks.append(access.steps.tasks[mine])
            at.append(access.steps.at[mine])
            start, end = access.steps.bytes_of(access.k)
            some = mine & (end > start)
            ends += [(int(start[some].min()), int(end[some].max()))] if some.any() else []
        task, turn = np.concatenate(tasks), np.concatenate(at)
        by_turn = np.lexsort((turn, task))
        each, begins = np.unique(task[by_turn], return_index=True)
        stops = np.append(begins[1:], len(task)) - 1
        first, last = turn[by_turn][begins], turn[by_turn][stops]
        begin, stop = min((a for a, _ in ends), default=0), max((b for _, b in ends), default=0)
        return _Life(tensor.name, begin, stop, each, first, last)

    def meets(self, other: _Life) -> bool:
        """Whether both are in the same bytes at the same time; a step that reads one may not write the other there."""
        if not (self.start < other.end and other.start < self.end):
            return False
        _, mine, its = np.intersect1d(self.tasks, other.tasks, return_indices=True)
        return bool(((self.first[mine] <= other.last[its]) & (other.first[its] <= self.last[mine])).any())


class ScratchContent:
    """What is in scratch of a tensor after each of the steps that write it, in their order.

    Boxes with one origin grow together as long as what they hold is a box again, as bands of a brick do; a box with
    another origin begins anew.
    """

    def __init__(
        self, tensor: TensorHistory, at: np.ndarray, tasks: np.ndarray, origins: np.ndarray, boxes: Boxes
    ) -> None:
        self.tensor, self.at, self.tasks, self.origins, self.boxes = tensor, at, tasks, origins, boxes

    @staticmethod
    def of(tensor: TensorHistory) -> ScratchContent:
        writes = [*tensor.writes, *tensor.updates]
        if not writes:
            fail(f"{tensor.reads[0].steps.where(0)} reads '{tensor.name}', which is never written")
        columns = [(a.steps.at, a.steps.tasks, a.origins, a.boxes()) for a in writes]
        at, tasks, origins = (np.concatenate([column[k] for column in columns]) for k in range(3))
        lo, hi = (np.concatenate([getattr(column[3], end) for column in columns]) for end in ("lo", "hi"))
        order = np.argsort(at)
        at, tasks, origins, lo, hi = at[order], tasks[order], origins[order], lo[order], hi[order]
        goes_on = np.concatenate([[False], (tasks[1:] == tasks[:-1]) & (origins[1:] == origins[:-1])])
        return ScratchContent(tensor, at, tasks, origins, _grown(goes_on, lo, hi))

    def check(self, access: TensorAccess) -> None:
        """What steps read is there."""
        steps, boxes, name = access.steps, access.boxes(), self.tensor.name
        some = np.flatnonzero((boxes.hi > boxes.lo).all(axis=1))
        last = np.searchsorted(self.at, steps.at[some]) - 1
        own = (last >= 0) & (self.tasks[last] == steps.tasks[some]) & (self.origins[last] == access.origins[some])
        if (i := first(~own)) is not None:
            fail(f"{steps.where(some[i])} reads '{name}' where its task has not written it")
        lo, hi = self.boxes.lo[last], self.boxes.hi[last]
        if (i := first(((boxes.lo[some] < lo) | (boxes.hi[some] > hi)).any(axis=1))) is not None:
            fail(f"{steps.where(some[i])} reads more of '{name}' than its task has written")


def _grown(goes_on: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> Boxes:
    """Each box with those before it that it goes on from, as far as all together are a box."""
    lo, hi = lo.copy(), hi.copy()
    turn = np.arange(len(lo)) - np.maximum.accumulate(np.where(goes_on, 0, np.arange(len(lo))))
    for k in range(1, int(turn.max(initial=0)) + 1):
        now = np.flatnonzero(turn == k)
        before = now - 1
        differ = (lo[now] != lo[before]) | (hi[now] != hi[before])
        touch = ((lo[now] <= hi[before]) & (lo[before] <= hi[now])).all(axis=1)
        one = now[(differ.sum(axis=1) <= 1) & touch]
        lo[one], hi[one] = np.minimum(lo[one], lo[one - 1]), np.maximum(hi[one], hi[one - 1])
    return Boxes(lo, hi)
