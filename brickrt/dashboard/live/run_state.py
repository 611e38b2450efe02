"""The state of runs under way, put together from the rows that workers fill in while they work."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.dashboard.figures import busy_us, moved_bytes
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
    """What a worker does: the task it runs or ran last (−1 for none yet), whether it runs now, its busy share."""

    task: int
    running: bool
    busy: float


@dataclass(frozen=True, eq=False)
class Moment:
    """One look at a run: states of all tasks and how many have which, joins aside; `subgraph` was begun last."""

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
        return self.labels.tasks


@dataclass(frozen=True, eq=False)
class Known:
    """What is looked up once per task graph."""

    labels: Labels
    own: np.ndarray  # whether a task is no join
    lives: LiveTensors
    moved: tuple[int, ...]  # bytes per subgraph
    elements: int  # of all tensors that are computed

    @staticmethod
    def of(tasks: TaskGraph) -> Known:
        moved = tuple(moved_bytes(tasks.plan, subgraph) for subgraph in tasks.plan.subgraphs)
        elements = sum(tasks.plan.graph.out(node).size for node in tasks.plan.graph.nodes)
        return Known(Labels(tasks), tasks.task_subgraph >= 0, LiveTensors.of(tasks), moved, elements)


class Current:
    """A run, under way until `finished` is set to when it ended: how far its rows have been read."""

    def __init__(self, known: Known, rows: Sequence[np.ndarray]) -> None:
        self.known, self.rows = known, rows
        self.began, self.finished = time.monotonic(), 0.0
        self.states = np.zeros(len(known.own), np.int8)
        self.read, self.busy = [0] * len(rows), [0] * len(rows)

    def look(self) -> Moment:
        """Reads what is new."""
        seconds = max(1e-9, (self.finished or time.monotonic()) - self.began)
        lanes = tuple(self._lane(worker, seconds) for worker in range(len(self.rows)))
        task = max((lane.task for lane in lanes), default=-1)  # numbered in the order of running
        subgraph = int(self.known.labels.tasks.task_subgraph[task]) if task >= 0 else 0
        last = [rows[at - 1, WAITS:].tolist() for rows, at in zip(self.rows, self.read) if at]
        waits, revisits = (sum(column) for column in zip(*last)) if last else (0, 0)
        states = self.states.copy()
        counts = _counts(states, self.known.own)
        live = self.known.lives.live(states)
        return Moment(
            labels=self.known.labels,
            states=states,
            counts=counts,
            lanes=lanes,
            subgraph=max(0, subgraph),
            seconds=seconds,
            waits=waits,
            revisits=revisits,
            live_bytes=live,
            elements=self.known.elements,
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


@dataclass(frozen=True)
class SubgraphRow:
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


class RunState:
    """Observes a runtime: what runs now, and the means of what ran. Its methods may be called from any thread.

    Runs of a few milliseconds follow one another faster than anybody looks. So what a run leaves is only noted, and
    read when somebody looks: the means are of the runs that were the last of their task graph then.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[int, Known] = {}
        self._current: Current | None = None
        self._ended: dict[int, GraphRun] = {}  # not read yet
        self._next = 0.0  # when they are read again
        self._busy: dict[int, tuple[np.ndarray, int]] = {}
        self._rows: tuple[tuple[int, int], list[SubgraphRow]] = ((0, 0), [])
        self.last: Moment | None = None
        self.host = ""

    def began(self, tasks: TaskGraph, rows: Sequence[np.ndarray]) -> None:
        with self._lock:
            if id(tasks) not in self._known:
                self._known[id(tasks)] = Known.of(tasks)
            self._current = Current(self._known[id(tasks)], rows)

    def ended(self, tasks: TaskGraph, events: TaskEvents) -> None:
        with self._lock:
            if self._current is not None:
                self._current.finished = time.monotonic()
            self._ended[id(tasks)] = GraphRun(tasks, events)

    def hosted(self, name: str, start: int, end: int) -> None:
        self.host = "" if end else name

    def moment(self) -> Moment | None:
        """A look at the run under way, or the end of the last one; None before the first."""
        with self._lock:
            if self._current is not None:
                self.last = self._current.look()
            if self._current is not None and self._current.finished:
                self._current = None
            return self.last

    def rows(self, labels: Labels) -> list[SubgraphRow]:
        """Per subgraph the mean of what was measured so far; zeros before the first run has ended."""
        with self._lock:
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + REFRESH
                self._read_ended()
            sums, runs = self._busy.get(id(labels.tasks), (np.zeros(len(labels.tasks.plan.subgraphs)), 0))
            key = id(labels.tasks), runs
            if self._rows[0] != key:
                self._rows = key, _table(self._known[id(labels.tasks)], sums / max(1, runs))
            return self._rows[1]

    def _read_ended(self) -> None:
        for key, run in self._ended.items():
            sums, runs = self._busy.get(key, (np.zeros(len(run.tasks.plan.subgraphs)), 0))
            self._busy[key] = sums + busy_us(run), runs + 1
        self._ended.clear()


def _table(known: Known, busy: np.ndarray) -> list[SubgraphRow]:
    return [_row(known, k, float(us), float(busy.sum()) or 1.0) for k, us in enumerate(busy)]


def _row(known: Known, number: int, us: float, total: float) -> SubgraphRow:
    s = known.labels.tasks.plan.subgraphs[number]
    per_us = 1 / us / 1e3 if us else 0.0
    return SubgraphRow(
        number=number,
        name=known.labels.subgraphs[number],
        strategy=s.strategy,
        brick="×".join(map(str, s.brick)),
        delta=s.delta,
        rho=s.rho,
        ms=us / 1e3,
        share=us / total,
        gflops=s.flops * per_us,
        gbps=known.moved[number] * per_us,
    )
