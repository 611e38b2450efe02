"""What engines report while they run: one row per task, in arrays that observers only read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.runtime.lowering.task_graph import TaskGraph


class TaskEvents:
    """All tasks of one run, one row each, by start time. Times are nanoseconds of a monotonic clock.

    `waits` and `revisits` are the worker's counts until then: tasks that it waited for, and tasks for which it passed
    over others that were not ready.

    Columns are put together when one is first asked for, which costs more than a task of a small network.
    """

    def __init__(self, filled: Sequence[np.ndarray]) -> None:
        """`filled` are the workers' buffers after the run."""
        self._filled = filled

    def trim(self) -> None:
        """Gives up the rows that are not used: each worker has room for all tasks."""
        self._filled = [rows[: used(rows)].copy() for rows in self._filled]

    @cached_property
    def _columns(self) -> tuple[np.ndarray, ...]:
        parts = [rows[: used(rows)] for rows in self._filled]
        rows = np.concatenate(parts)
        order = np.argsort(rows[:, 1], kind="stable")
        worker = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        return worker[order], *rows[order].T

    @property
    def worker(self) -> np.ndarray:
        """The number of the worker that ran it."""
        return self._columns[0]

    @property
    def task(self) -> np.ndarray:
        """Its number."""
        return self._columns[1]

    @property
    def start(self) -> np.ndarray:
        """When it began, in nanoseconds."""
        return self._columns[2]

    @property
    def end(self) -> np.ndarray:
        """When it ended, in nanoseconds."""
        return self._columns[3]

    @property
    def waits(self) -> np.ndarray:
        """Tasks that the worker had waited for by then."""
        return self._columns[4]

    @property
    def revisits(self) -> np.ndarray:
        """Tasks for which the worker had passed over others by then."""
        return self._columns[5]

    def __len__(self) -> int:
        return len(self.task)


class Observer(Protocol):
    """Is told of runs while they go on. Times are nanoseconds of the clock of `time.monotonic_ns`."""

    def began(self, tasks: TaskGraph, rows: Sequence[np.ndarray]) -> None:
        """A task graph begins to run; workers will fill in `rows`, made by `buffers`."""

    def ended(self, tasks: TaskGraph, events: TaskEvents) -> None:
        """The task graph has run. Not called for runs that fail or are cancelled."""

    def hosted(self, name: str, start: int, end: int) -> None:
        """The host computes an ONNX node: called when it begins, with `end` 0, and when it has ended."""


Watcher = Callable[[TaskEvents], None]


class Afterwards:
    """An observer that passes the events of every run to a function once the run has ended."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def began(self, tasks: TaskGraph, rows: Sequence[np.ndarray]) -> None:
        """Nothing is told yet."""

    def ended(self, tasks: TaskGraph, events: TaskEvents) -> None:
        """Calls the function."""
        self._watcher(events)

    def hosted(self, name: str, start: int, end: int) -> None:
        """Nodes on the host have no events."""


def observer_of(watch: Watcher | Observer | None) -> Observer | None:
    """An observer as it is; a function wrapped as an observer. Raises BrickError for what is neither."""
    if watch is not None and not callable(watch) and not hasattr(watch, "began"):
        raise BrickError(f"watch is a {type(watch).__name__}: give a function, or an Observer")
    return Afterwards(watch) if callable(watch) else watch


def buffers(tasks: int, workers: int) -> list[np.ndarray]:
    """One buffer per worker, each for all tasks: rows of task, start, end, waits, revisits, from the first on.

    A start of 0 says that a row is not used yet, an end of 0 that the task runs. Memory is taken as rows are used.
    """
    return [np.zeros((tasks, 5), np.int64) for _ in range(workers)]


def used(rows: np.ndarray, first: int = 0) -> int:
    """How many rows of a worker's buffer are used, where `first` of them are known to be."""
    return bisect_left(range(len(rows)), True, first, key=lambda k: bool(rows[k, 1] == 0))
