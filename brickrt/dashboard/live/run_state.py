"""The state of runs under way, put together from the rows that workers fill in while they work."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.dashboard.figures import SubgraphFigures, busy_us, planned_figures, with_times
from brickrt.dashboard.labels import Labels
from brickrt.dashboard.live_tensors import LiveTensors
from brickrt.dashboard.recording import GraphRun
from brickrt.runtime.events import TaskEvents, used
from brickrt.runtime.lowering.task_graph import TaskGraph

REFRESH = 0.5  # seconds between two tables: figures that change faster cannot be read
WAITING, RUNNING, COMPLETE = range(3)
TASK, START, END, WAITS, REVISITS = range(5)  # words of a worker's row


@dataclass(frozen=True, eq=False)
class Lane:
    """What a worker does: the task it runs or ran last (−1 for none yet), whether it runs now, and the share of time
    for which it was busy."""

    task: int
    running: bool
    busy: float


@dataclass(frozen=True, eq=False)
class Moment:
    """One look at a run: the states of all tasks, and how many wait, run and are complete, joins aside; `subgraph` was
    begun last."""

    labels: Labels
    states: np.ndarray
    counts: tuple[int, int, int]
    lanes: tuple[Lane, ...]
    subgraph: int
    seconds: float
    waits: int
    revisits: int
    live_bytes: int
    elements: int

    @property
    def tasks(self) -> TaskGraph:
        """The task graph that runs."""
        return self.labels.tasks

    @property
    def complete_first(self) -> int:
        """Tasks so far that were the first that their worker looked at."""
        return max(0, self.counts[COMPLETE] - self.waits - self.revisits)


@dataclass(frozen=True, eq=False)
class GraphFacts:
    """What is looked up once per task graph: names, which tasks are no joins, stored tensors, figures of subgraphs
    without times, and the elements of all tensors that are computed."""

    labels: Labels
    own: np.ndarray
    live_tensors: LiveTensors
    planned: list[SubgraphFigures]
    elements: int

    @staticmethod
    def of(tasks: TaskGraph) -> GraphFacts:
        """The facts of a task graph."""
        elements = sum(tasks.plan.graph.out(node).size for node in tasks.plan.graph.nodes)
        own = tasks.task_subgraph >= 0
        return GraphFacts(Labels(tasks), own, LiveTensors.of(tasks), planned_figures(tasks), elements)


class CurrentRun:
    """A run and how far its rows have been read. It is under way until `finished` is set to the time of its end."""

    def __init__(self, facts: GraphFacts, rows: Sequence[np.ndarray]) -> None:
        self.facts, self.rows = facts, rows
        self.began, self.finished = time.monotonic(), 0.0
        self.states = np.zeros(len(facts.own), np.int8)
        self.read, self.busy = [0] * len(rows), [0] * len(rows)

    def look(self) -> Moment:
        """Reads the rows that are new; gives the state of the run."""
        seconds = max(1e-9, (self.finished or time.monotonic()) - self.began)
        lanes = tuple(self._lane(worker, seconds) for worker in range(len(self.rows)))
        task = max((lane.task for lane in lanes), default=-1)  # numbered in the order of running
        facts, states = self.facts, self.states.copy()
        last = [rows[at - 1, WAITS:].tolist() for rows, at in zip(self.rows, self.read) if at]
        waits, revisits = (sum(column) for column in zip(*last)) if last else (0, 0)
        return Moment(
            labels=facts.labels,
            states=states,
            counts=_counts(states, facts.own),
            lanes=lanes,
            subgraph=max(0, int(facts.labels.tasks.task_subgraph[task])) if task >= 0 else 0,
            seconds=seconds,
            waits=waits,
            revisits=revisits,
            live_bytes=facts.live_tensors.live(states),
            elements=facts.elements,
        )

    def _lane(self, worker: int, seconds: float) -> Lane:
        rows, at = self.rows[worker], self.read[worker]
        begun = used(rows, at)
        ended = begun - 1 if begun and rows[begun - 1, END] == 0 else begun
        self.states[rows[at:ended, TASK]] = COMPLETE
        self.busy[worker] += int((rows[at:ended, END] - rows[at:ended, START]).sum())
        self.read[worker] = ended
        running = begun > ended
        task = int(rows[begun - 1, TASK]) if begun else -1
        spent = self.busy[worker]
        if running:
            self.states[task] = RUNNING
            spent += time.monotonic_ns() - int(rows[ended, START])
        return Lane(task, running, min(1.0, spent / 1e9 / seconds))


def _counts(states: np.ndarray, own: np.ndarray) -> tuple[int, int, int]:
    running, complete = (int(np.count_nonzero(own & (states == state))) for state in (RUNNING, COMPLETE))
    return int(np.count_nonzero(own)) - running - complete, running, complete


class RunState:
    """Observes a runtime: what runs now, and the means of what ran. Its methods may be called from any thread.

    Runs of a few milliseconds follow one another faster than anybody looks. So what a run leaves is only noted, and
    read when somebody looks: the means are of the runs that were the last of their task graph then.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: dict[int, GraphFacts] = {}
        self._current: CurrentRun | None = None
        self._ended: dict[int, GraphRun] = {}  # not read yet
        self._next = 0.0  # when they are read again
        self._busy: dict[int, tuple[np.ndarray, int]] = {}
        self._rows: tuple[tuple[int, int], list[SubgraphFigures]] = ((0, 0), [])
        self.last: Moment | None = None
        self.host = ""

    def began(self, tasks: TaskGraph, rows: Sequence[np.ndarray]) -> None:
        """Takes the rows to be read while the run goes on."""
        with self._lock:
            if id(tasks) not in self._facts:
                self._facts[id(tasks)] = GraphFacts.of(tasks)
            self._current = CurrentRun(self._facts[id(tasks)], rows)

    def ended(self, tasks: TaskGraph, events: TaskEvents) -> None:
        """Notes when the run ended, and what it left."""
        with self._lock:
            if self._current is not None:
                self._current.finished = time.monotonic()
            self._ended[id(tasks)] = GraphRun(tasks, events)

    def hosted(self, name: str, start: int, end: int) -> None:
        """Notes the node that the host computes, until it has ended."""
        self.host = "" if end else name

    def moment(self) -> Moment | None:
        """A look at the run under way, or the end of the last one; None before the first."""
        with self._lock:
            if self._current is not None:
                self.last = self._current.look()
                if self._current.finished:
                    self._current = None
            return self.last

    def rows(self, labels: Labels) -> list[SubgraphFigures]:
        """Per subgraph the mean of what was measured so far; zeros before the first run has ended."""
        with self._lock:
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + REFRESH
                self._read_ended()
            planned = self._facts[id(labels.tasks)].planned
            sums, runs = self._busy.get(id(labels.tasks), (np.zeros(len(planned)), 0))
            key = id(labels.tasks), runs
            if self._rows[0] != key:
                self._rows = key, with_times(planned, sums / max(1, runs))
            return self._rows[1]

    def _read_ended(self) -> None:
        for key, run in self._ended.items():
            busy = busy_us(run)
            sums, runs = self._busy.get(key, (np.zeros_like(busy), 0))
            self._busy[key] = sums + busy, runs + 1
        self._ended.clear()
