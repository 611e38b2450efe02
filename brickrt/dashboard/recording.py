"""What was watched: the runs of task graphs and the host's nodes, on one clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from brickrt.runtime.events import Observer, TaskEvents
from brickrt.runtime.lowering.task_graph import TaskGraph


@dataclass(frozen=True, eq=False)
class GraphRun:
    """One run of a task graph."""

    tasks: TaskGraph
    events: TaskEvents


@dataclass(frozen=True)
class HostRun:
    """One ONNX node that the host computed whole; nanoseconds of the same clock as the tasks'."""

    name: str
    start: int
    end: int


@dataclass
class Recording:
    """All that was watched, in order."""

    graphs: list[GraphRun] = field(default_factory=list)
    hosts: list[HostRun] = field(default_factory=list)

    @property
    def began(self) -> int:
        """Nanoseconds at which the first thing began; 0 where there is none."""
        starts = [int(run.events.start[0]) for run in self.graphs if len(run.events)]
        return min([*starts, *(run.start for run in self.hosts)], default=0)


MOST_EVENTS = 2_000_000  # kept, of the last runs: 100 MB


class Recorder:
    """Observes a runtime, and keeps the last runs."""

    def __init__(self, most: int = MOST_EVENTS) -> None:
        self.recording, self._most, self._held = Recording(), most, 0

    def began(self, tasks: TaskGraph, rows: Sequence[np.ndarray]) -> None:
        pass

    def ended(self, tasks: TaskGraph, events: TaskEvents) -> None:
        graphs = self.recording.graphs
        events.trim()
        graphs.append(GraphRun(tasks, events))
        self._held += len(tasks)
        while self._held > self._most and len(graphs) > 1:
            self._held -= len(graphs.pop(0).tasks)

    def hosted(self, name: str, start: int, end: int) -> None:
        if end:
            self.recording.hosts.append(HostRun(name, start, end))


@dataclass(frozen=True)
class Together:
    """Several observers as one."""

    observers: Sequence[Observer]

    def began(self, tasks: TaskGraph, rows: Sequence[np.ndarray]) -> None:
        for one in self.observers:
            one.began(tasks, rows)

    def ended(self, tasks: TaskGraph, events: TaskEvents) -> None:
        for one in self.observers:
            one.ended(tasks, events)

    def hosted(self, name: str, start: int, end: int) -> None:
        for one in self.observers:
            one.hosted(name, start, end)


def live_bytes(run: GraphRun) -> tuple[np.ndarray, np.ndarray]:
    """(nanoseconds, bytes): what tensors that are stored whole hold, from their first write to their last read.

    Inputs and outputs of the graph, scratch and constants are not counted: they are there all the time.
    """
    begins, ends = _times(run)
    changes: list[tuple[float, int]] = []
    for name, place in run.tasks.places.items():
        if place.kind == "arena" and name in begins:
            changes += [(begins[name], place.nbytes), (ends[name], -place.nbytes)]
    changes.sort()
    when, step = (np.array([c[k] for c in changes], np.int64) for k in (0, 1))
    return when, np.cumsum(step)


def _times(run: GraphRun) -> tuple[dict[str, int], dict[str, int]]:
    """Per stored tensor, when its first task began and when the last task that touches it ended."""
    tasks, graph = run.tasks, run.tasks.plan.graph
    start, end = (np.zeros(len(tasks), np.int64) for _ in range(2))
    start[run.events.task], end[run.events.task] = run.events.start, run.events.end
    begins: dict[str, int] = {}
    ends: dict[str, int] = {}
    for steps in tasks.steps:
        if not len(steps.tasks):
            continue
        node = graph.nodes[steps.node]
        first, last = int(start[steps.tasks].min()), int(end[steps.tasks].max())
        root = tasks.root(node.output)
        begins[root] = min(begins.get(root, first), first)
        for name in (root, *map(tasks.root, node.inputs)):
            ends[name] = max(ends.get(name, last), last)
    return begins, ends
