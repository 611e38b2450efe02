"""The state of runs under way, put together from the rows that workers fill in while they work."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from brickrt.dashboard.figures import busy_us, moved_bytes
from brickrt.dashboard.labels import Labels
from brickrt.dashboard.recording import GraphRun
from brickrt.runtime.events import TaskEvents
from brickrt.runtime.task_graph import TaskGraph

WAITING, RUNNING, COMPLETE = range(3)
CHUNK = 1 << 14  # rows looked at together


@dataclass(frozen=True, eq=False)
class Lane:
    """What a worker does: the task it runs or ran last (−1 for none yet), whether it runs now, its busy share."""

    task: int
    running: bool
    busy: float


@dataclass(frozen=True, eq=False)
class Moment:
    """One look at a run. `states` are those of all tasks; `subgraph` is the one that was begun last."""

    tasks: TaskGraph
    states: np.ndarray
    lanes: tuple[Lane, ...]
    subgraph: int
    seconds: float
    waits: int
    revisits: int

    @cached_property
    def counts(self) -> tuple[int, int, int]:
        """Tasks not started, in progress, complete; joins aside."""
        own = self.states[self.tasks.task_subgraph >= 0]
        numbers = np.bincount(own, minlength=3)
        return int(numbers[0]), int(numbers[1]), int(numbers[2])

    def cells(self) -> np.ndarray:
        """States of the bricks of the current subgraph's output, [rows, columns] of the last two dimensions cut; bricks
        that differ in other dimensions count together: complete when all are."""
        boxes, owner = Labels(self.tasks).output_boxes(self.subgraph)
        if not len(owner):
            return np.zeros((1, 1), np.int64)
        index = [np.unique(column, return_inverse=True)[1].reshape(-1) for column in boxes.T]
        cut = [at for at in index if at.max() > 0][-2:]
        y, x = [np.zeros(len(owner), np.int64)] * (2 - len(cut)) + cut
        return fold_states(self.states[owner], y, x, (int(y.max()) + 1, int(x.max()) + 1))


def fold_states(states: np.ndarray, y: np.ndarray, x: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Many states per cell to one: not started or complete where all are, in progress else."""
    low, high = np.full(shape, COMPLETE), np.full(shape, WAITING)
    np.minimum.at(low, (y, x), states)
    np.maximum.at(high, (y, x), states)
    return np.where(low == high, low, RUNNING)


@dataclass
class Current:
    """The run under way: how far its rows have been read."""

    tasks: TaskGraph
    rows: Sequence[np.ndarray]  # per worker: task, start, end, waits, revisits; −1 where nothing is yet
    began: float
    states: np.ndarray
    read: list[int] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)

    @staticmethod
    def of(tasks: TaskGraph, rows: Sequence[np.ndarray]) -> Current:
        states = np.zeros(len(tasks), np.int64)
        return Current(tasks, rows, time.monotonic(), states, [0] * len(rows), [0] * len(rows))

    def look(self) -> Moment:
        """Reads what is new."""
        lanes = tuple(self._lane(worker) for worker in range(len(self.rows)))
        latest = max(lanes, key=lambda lane: lane.task, default=None)  # numbered in the order of running
        task = latest.task if latest else -1
        subgraph = int(self.tasks.task_subgraph[task]) if task >= 0 else 0
        counted = [rows[at - 1, 3:] for rows, at in zip(self.rows, self.read) if at]
        waits, revisits = np.sum(counted, axis=0).tolist() if counted else (0, 0)
        seconds = time.monotonic() - self.began
        return Moment(self.tasks, self.states.copy(), lanes, max(0, subgraph), seconds, waits, revisits)

    def _lane(self, worker: int) -> Lane:
        rows, at = self.rows[worker], self.read[worker]
        while at < len(rows):
            part = rows[at : at + CHUNK]
            ended = part[:, 2] >= 0
            n = len(part) if ended.all() else int(np.argmin(ended))
            self.states[part[:n, 0]] = COMPLETE
            self.busy[worker] += int((part[:n, 2] - part[:n, 1]).sum())
            at += n
            if n < len(part):
                break
        self.read[worker] = at
        busy = self.busy[worker] / 1e9 / max(1e-9, time.monotonic() - self.began)
        now = int(rows[at, 0]) if at < len(rows) else -1
        if now >= 0:
            self.states[now] = RUNNING
            return Lane(now, True, min(1.0, busy))
        return Lane(int(rows[at - 1, 0]) if at else -1, False, min(1.0, busy))


class Watching:
    """Observes a runtime: what runs now, and the sums of what ran. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: Current | None = None
        self._busy: dict[int, tuple[TaskGraph, np.ndarray, int]] = {}
        self.last: Moment | None = None
        self.finished = 0

    def began(self, tasks: TaskGraph, rows: Sequence[np.ndarray]) -> None:
        with self._lock:
            self._current = Current.of(tasks, rows)

    def ended(self, tasks: TaskGraph, events: TaskEvents) -> None:
        with self._lock:
            if self._current is not None:
                self.last = self._current.look()
            self._current = None
            self.finished += 1
            _, sums, runs = self._busy.get(id(tasks), (tasks, 0.0, 0))
            self._busy[id(tasks)] = tasks, sums + busy_us(GraphRun(tasks, events)), runs + 1

    def moment(self) -> Moment | None:
        """A look at the run under way, or the end of the last one; None before the first."""
        with self._lock:
            if self._current is not None:
                self.last = self._current.look()
            return self.last

    def rows(self, tasks: TaskGraph) -> list[Row]:
        """Per subgraph the mean of what was measured so far; zeros before the first run has ended."""
        with self._lock:
            _, sums, runs = self._busy.get(id(tasks), (tasks, np.zeros(len(tasks.plan.subgraphs)), 1))
        return table_rows(tasks, sums / runs)


@dataclass(frozen=True)
class Row:
    """A line of the table of subgraphs; time is that of all workers together."""

    number: int
    name: str
    strategy: str
    brick: str
    delta: float
    rho: float
    ms: float
    share: float
    gflops: float
    gbps: float


def table_rows(tasks: TaskGraph, busy: np.ndarray) -> list[Row]:
    labels, total = Labels(tasks), float(busy.sum()) or 1.0
    rows = []
    for k, s in enumerate(tasks.plan.subgraphs):
        us = float(busy[k])
        per_us = 1 / us / 1e3 if us else 0.0
        moved = moved_bytes(tasks.plan, s) * per_us
        brick = "×".join(map(str, s.brick))
        rows.append(
            Row(
                k, labels.subgraphs[k], s.strategy, brick, s.delta, s.rho, us / 1e3, us / total, s.flops * per_us, moved
            )
        )
    return rows
