"""Checks of the buffers that groups of padded bricks have in the arena, and that calls of a library read and write.

Launches that touch them run one by one, and steps of one launch do not meet. What steps read there was last written for
the same brick, or by a call for its group. That calls find what they read is not checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.ops.cuda.operand import Operand
from brickrt.ops.types import Boxes
from brickrt.plan.geometry.bricks import ramps
from brickrt.runtime.cuda.kernels.kernel_context import ARENA
from tests.support.verify.order import Order
from tests.support.verify.steps import StepGroup
from tests.support.verify.types import Expected, fail, first

CALL = -2  # in the place of a brick


@dataclass(frozen=True, eq=False)
class BufferTouch:
    """Bytes `start` … `end` − 1 of the arena that steps `of` read or write, as many runs as it takes."""

    steps: StepGroup
    of: np.ndarray
    start: np.ndarray
    end: np.ndarray
    writes: bool

    @property
    def tasks(self) -> np.ndarray:
        return self.steps.tasks[self.of]

    def take(self, which: np.ndarray) -> BufferTouch:
        return BufferTouch(self.steps, self.of[which], self.start[which], self.end[which], self.writes)


def check_buffers(steps: Sequence[StepGroup], order: Order, expected: Expected) -> None:
    """Checks the buffers of all steps and calls."""
    for use in expected.uses:
        least, room = (0, expected.arena) if use.tensor is not None else (expected.arena, expected.base_bytes[ARENA])
        if use.start < least or use.end > room:
            what = f"launch {use.launch}: node '{use.node}' has bytes {use.start}:{use.end} of the arena"
            fail(f"{what}, not in {least}:{room}")
    calls = [use for use in expected.uses if use.tensor is None]
    touched = [touch(some, k) for some in steps for k, part in enumerate(some.like.parts) if _buffer(some, k)]
    launches = [order.launch_of[one.tasks] for one in touched]
    which = np.unique(np.concatenate([np.array([use.launch for use in calls], np.int64), *launches])).tolist()
    order.check_chain(which, "they use the buffers of the same bricks")
    ends = [end for one in touched for end in (one.start, one.end)]
    ends += [np.array([[use.start, use.end] for use in calls], np.int64).reshape(-1)]
    written = Written(np.unique(np.concatenate(ends)), _begun(touched, launches, expected))
    for launch in which:
        now = [one.take(np.flatnonzero(own == launch)) for one, own in zip(touched, launches, strict=True)]
        written.by_steps([one for one in now if len(one.of)], expected.owner, launch)
        for use in calls:
            if use.launch == launch and use.writes:
                written.by_call(use.start, use.end, launch)


def _buffer(steps: StepGroup, k: int) -> bool:
    return steps.like.parts[k] is None and not steps.like.constant[k]


def _begun(touched: Sequence[BufferTouch], launches: Sequence[np.ndarray], expected: Expected) -> np.ndarray:
    """The first launch in which a part of each of the graph's tasks touches buffers."""
    found = np.full(len(expected.dep_offsets) - 1, np.iinfo(np.int64).max)
    for one, own in zip(touched, launches, strict=True):
        np.minimum.at(found, expected.owner[one.tasks], own)
    return found


def touch(steps: StepGroup, k: int) -> BufferTouch:
    """What steps touch of their operand `k`."""
    boxes = steps.region(k)
    some = np.flatnonzero((boxes.hi > boxes.lo).all(axis=1))
    of, start, end = runs(steps.like.operands[k], steps.origins[some, k], boxes.take(some))
    return BufferTouch(steps, some[of], start, end, k == 0)


def runs(operand: Operand, origins: np.ndarray, boxes: Boxes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes, none of which is empty, as runs of bytes without gaps: of which box each is, its first and its end."""
    size, strides = operand.dtype.itemsize, np.asarray(operand.strides, np.int64)
    length, outer, extents = np.ones(len(boxes), np.int64), list[int](), boxes.extents
    for axis in sorted(range(boxes.rank), key=lambda axis: operand.strides[axis]):
        if not outer and (length[extents[:, axis] > 1] == strides[axis]).all():
            length = length * extents[:, axis]
        elif (extents[:, axis] > 1).any():
            outer.append(axis)
    start, of = origins + boxes.lo @ strides * size, np.arange(len(boxes))
    for axis in outer:
        more = extents[of, axis]
        start, of = np.repeat(start, more) + ramps(more) * (strides[axis] * size), np.repeat(of, more)
    return of, start, start + length[of] * size


class Written:
    """For which brick, and in which launch, bytes were last written, which are cut wherever a run begins or ends.

    `begun` tells of each brick, by its task of the graph, the first launch in which buffers have something of it.
    """

    def __init__(self, cuts: np.ndarray, begun: np.ndarray) -> None:
        self.cuts, self.begun = cuts, begun
        self.brick, self.launch, self.task = (np.full(len(cuts), -1, np.int64) for _ in range(3))

    def _pieces(self, one: BufferTouch) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the steps, and of the pieces between two cuts."""
        first_cut, last = np.searchsorted(self.cuts, one.start), np.searchsorted(self.cuts, one.end)
        counts = last - first_cut
        return np.repeat(one.of, counts), np.repeat(first_cut, counts) + ramps(counts)

    def by_steps(self, touched: Sequence[BufferTouch], owner: np.ndarray, launch: int) -> None:
        """Steps of one launch."""
        self.task[:] = -1
        writes = [(one.steps, *self._pieces(one)) for one in touched if one.writes]
        for steps, of, pieces in writes:
            taken = self.task[pieces] >= 0
            self.task[pieces] = steps.tasks[of]
            if (i := first(taken | (self.task[pieces] != steps.tasks[of]))) is not None:
                fail(f"{steps.where(of[i])} writes what another task of launch {launch} does")
        for one in touched:
            if not one.writes:
                self._read(one, owner, launch)
        for steps, of, pieces in writes:
            self.brick[pieces], self.launch[pieces] = owner[steps.tasks[of]], launch

    def _read(self, one: BufferTouch, owner: np.ndarray, launch: int) -> None:
        of, pieces = self._pieces(one)
        tasks, steps = one.steps.tasks[of], one.steps
        if (i := first((self.task[pieces] >= 0) & (self.task[pieces] != tasks))) is not None:
            fail(f"{steps.where(of[i])} reads what task {self.task[pieces[i]]} of launch {launch} writes")
        called = (self.brick[pieces] == CALL) & (self.launch[pieces] > self.begun[owner[tasks]])
        if (i := first((self.brick[pieces] != owner[tasks]) & ~called)) is not None:
            fail(f"{steps.where(of[i])} reads what was not written for its brick")

    def by_call(self, start: int, end: int, launch: int) -> None:
        """A call."""
        pieces = slice(*np.searchsorted(self.cuts, [start, end]).tolist())
        self.brick[pieces], self.launch[pieces] = CALL, launch
