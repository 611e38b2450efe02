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
