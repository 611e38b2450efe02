"""What stored tensors hold at a moment of a run, and over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from brickrt.dashboard.recording import GraphRun
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
        found = [(tasks.places[name].nbytes, *ends) for name, ends in _lifetimes(tasks, numbers, numbers).items()]
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
    for name, (begins, ends) in _lifetimes(run.tasks, start, end).items():
        nbytes = run.tasks.places[name].nbytes
        changes += [(begins, nbytes), (ends, -nbytes)]
    when, step = np.array(sorted(changes), np.int64).reshape(-1, 2).T
    return when, np.cumsum(step)


def _lifetimes(tasks: TaskGraph, start: np.ndarray, end: np.ndarray) -> dict[str, tuple[int, int]]:
    """Per tensor of the arena the least `start` of the tasks that write it, and the greatest `end` of those that touch
    it; `start` and `end` are per task."""
    graph = tasks.plan.graph
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for steps in tasks.steps:
        if not len(steps.tasks):
            continue
        node, low, high = graph.nodes[steps.node], int(start[steps.tasks].min()), int(end[steps.tasks].max())
        root = tasks.root(node.output)
        first[root] = min(first.get(root, low), low)
        for name in (root, *map(tasks.root, node.inputs)):
            last[name] = max(last.get(name, high), high)
    return {name: (first[name], last[name]) for name in first if tasks.places[name].kind == "arena"}
