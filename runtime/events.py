"""What engines report while they run: one record per task, in arrays that watchers only read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class TaskEvents:
    """All tasks of one run, one row each, by start time. Times are nanoseconds of a monotonic clock; `waits` and
    `revisits` count the tasks until then that the worker waited for, and those for which it passed over others."""

    task: np.ndarray
    worker: np.ndarray
    start: np.ndarray
    end: np.ndarray
    waits: np.ndarray
    revisits: np.ndarray

    def __len__(self) -> int:
        return len(self.task)


Watcher = Callable[[TaskEvents], None]


def buffers(tasks: int, workers: int) -> list[np.ndarray]:
    """One buffer per worker, each for all tasks: rows of task, start, end, waits, revisits; task −1 is unused."""
    return [np.full((tasks, 5), -1, np.int64) for _ in range(workers)]


def collect(filled: list[np.ndarray]) -> TaskEvents:
    """The rows that workers filled in."""
    used = [rows[rows[:, 0] >= 0] for rows in filled]
    worker = np.repeat(np.arange(len(used)), [len(rows) for rows in used])
    rows = np.concatenate(used)
    order = np.argsort(rows[:, 1], kind="stable")
    rows = rows[order]
    return TaskEvents(rows[:, 0], worker[order], *(rows[:, k] for k in range(1, 5)))
