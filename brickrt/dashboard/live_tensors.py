"""What stored tensors hold at a moment of a run, and over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from brickrt.dashboard.recording import GraphRun
from brickrt.runtime.lowering.lifetimes import task_lifetimes
from brickrt.runtime.lowering.task_graph import TaskGraph


@dataclass(frozen=True, eq=False)
class LiveTensors:
    """Per tensor of the arena: its bytes, the first task that writes it, and the last that touches it.

    First and last are by number, which is nearly the order of running: workers may pass over tasks.
    """

    nbytes: np.ndarray
    first: np.ndarray
    last: np.ndarray

    @staticmethod
    def of(tasks: TaskGraph) -> LiveTensors:
        """The tensors of a task graph's arena."""
        numbers = np.arange(len(tasks))
        found = [
            (tasks.allocations[name].nbytes, *ends) for name, ends in task_lifetimes(tasks, numbers, numbers).items()
        ]
        return LiveTensors(*np.array(found, np.int64).reshape(-1, 3).T)

    def live(self, states: np.ndarray) -> int:
        """Bytes of the tensors that are written and not yet read for the last time."""
        alive = (states[self.first] > 0) & (states[self.last] < 2)
        return int(self.nbytes[alive].sum())


def live_bytes(run: GraphRun) -> tuple[np.ndarray, np.ndarray]:
    """(nanoseconds, bytes): what tensors that are stored whole hold, from their first write to their last read.

    Inputs and outputs of the graph, scratch and constants are not counted: they are there all the time.
    """
    start, end = (np.zeros(len(run.tasks), np.int64) for _ in range(2))
    start[run.events.task], end[run.events.task] = run.events.start, run.events.end
    changes: list[tuple[int, int]] = []
    for name, (begins, ends) in task_lifetimes(run.tasks, start, end).items():
        nbytes = run.tasks.allocations[name].nbytes
        changes += [(begins, nbytes), (ends, -nbytes)]
    when, step = np.array(sorted(changes), np.int64).reshape(-1, 2).T
    return when, np.cumsum(step)
