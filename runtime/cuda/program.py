"""A program of the CUDA engine, and its runs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.runtime.cuda.build import Units, check_tables, make_tables
from brickrt.runtime.cuda.context import (
    CANCELLED,
    CONTEXT_WORDS,
    COUNTS,
    FIRST_END,
    LAST_EPOCH,
    MOST_TASKS,
    Context,
    why_stopped,
)
from brickrt.runtime.cuda.cudnn import find_calls
from brickrt.runtime.cuda.driver import CaptureRefused, Driver, Event, Function, Graph, Progress, Stream
from brickrt.runtime.cuda.ends import Ends
from brickrt.runtime.cuda.launches import Launch, make_launches
from brickrt.runtime.cuda.memory import Parts
from brickrt.runtime.cuda.records import Records
from brickrt.runtime.cuda.streams import schedule
from brickrt.runtime.cuda.watching import Watch
from brickrt.runtime.engine import Cancelled, Counts, LaunchMode
from brickrt.runtime.task_graph import TaskGraph

STREAMS = 4  # branches that run side by side
WAVES = 2  # tasks of a group of memoized bricks, per node, in multiples of the device's multiprocessors
SCRATCH_SHARE = 8  # of the device's memory that scratch may take: one part in so many
SPIN_LIMIT = 1 << 23  # looks in vain, of about a microsecond each


@dataclass(frozen=True)
class CudaOptions:
    """How plans are launched: see `launches.py`; "graph" and "persistent" as one captured graph, "auto" as the latter.

    `group` is the most tasks of a group of memoized bricks; None: by the device's size. `library`: cuDNN computes
    products of whole layers where it is present."""

    launch: LaunchMode = "auto"
    group: int | None = None
    library: bool = True


class CudaProgram:
    """Functions, tables and memory of one task graph on a device. `run` may be called from any thread; runs take turns.

    The constants of the plan's graph are uploaded and then released: afterwards only their types are known there.
    `not_captured` says why there is no CUDA graph though one was asked for.
    """

    def __init__(
        self, tasks: TaskGraph, driver: Driver, options: CudaOptions | None = None, progress: Progress | None = None
    ) -> None:
        options = options or CudaOptions()
        self.tasks, self._driver, self._lock, self._cancelling = tasks, driver, threading.Lock(), threading.Lock()
        self._cancelled, self._epoch = False, 0
        self._main, self._side, self._idle = driver.stream(), driver.stream(), driver.event()
        self._branches: list[Stream] = []
        group = options.group or WAVES * driver.spec.cores * max(
            (len(s.nodes) for s in tasks.plan.subgraphs), default=1
        )
        self._launches = make_launches(tasks, options.launch in ("auto", "persistent"), group)
        self._schedule = schedule([launch.after for launch in self._launches], STREAMS)
        self._calls = find_calls(tasks, self._launches, driver.library() if options.library else None)
        records = Records(tasks, self._calls.steps)
        units = Units(records, self._launches, driver.threads)
        self._functions = self._compiled(units, progress)
        self._tables = make_tables(tasks, self._launches, units.numbered)
        self._ends = Ends(driver, tasks.plan.graph)
        base_bytes = tasks.scratch_bytes, tasks.arena_bytes, records.constants.nbytes, *self._ends.sizes
        check_tables(self._tables, self._launches, units, base_bytes)
        self._place(records)
        self._prepare_streams()
        self.not_captured: str | None = None
        self._graph = None if options.launch == "streams" else self._captured()

    def _compiled(self, units: Units, progress: Progress | None) -> dict[int, Function]:
        """The functions of all launches that are not the library's."""
        mine = {k: which for k, which in enumerate(units.of) if k not in self._calls.layers}
        needed, sources = sorted(set(mine.values())), list(units.sources)
        found = dict(zip(needed, self._driver.functions([sources[k] for k in needed], progress), strict=True))
        return {k: found[which] for k, which in mine.items()}

    # ---- memory

    def _place(self, records: Records) -> None:
        """Takes the memory and writes what stays as it is."""
        tables, constants = self._tables, records.constants
        self._stride = -(-self.tasks.scratch_bytes // 256) * 256
        self._slots = self._most_slots()
        arrays = {
            "task_at": tables.table.task_at,
            "records": tables.table.records,
            "dep_offsets": tables.dep_offsets,
            "deps": tables.deps,
        }
        own = {
            "context": 8 * (CONTEXT_WORDS + FIRST_END + len(self._ends)),
            "words": 4 * len(tables),
            "tickets": 8 * len(self._launches),
            "counts": 8 * COUNTS,
            "stop": 8,
            "constants": constants.nbytes,
            "arena": self.tasks.arena_bytes,
            "scratch": self._stride * self._slots,
            "factors": self._calls.nbytes,
            "workspace": self._calls.workspace * self._schedule.streams,
        }
        self._memory = Parts(self._driver, {name: array.nbytes for name, array in arrays.items()} | own)
        for name, array in arrays.items():
            self._memory.fill(name, array, self._main)
        for offset, array in constants.pieces:
            self._memory.fill("constants", array, self._main, offset)
        for offset, array in self._calls.pieces:
            self._memory.fill("factors", array, self._main, offset)
        self._constant_bytes = constants.nbytes + self._calls.nbytes
        at = {name: self._memory[name] for name in (*arrays, "words", "tickets", "counts", "stop")}
        bases = self._memory["context"] + 8 * CONTEXT_WORDS
        self._context = Context(bases=bases, scratch_stride=self._stride, spin_limit=SPIN_LIMIT, **at)
        self._main.synchronize()
        self._told = np.zeros(0, np.int64)
        self._counted = np.zeros(COUNTS, np.int64)

    def _most_slots(self) -> int:
        """Blocks that have scratch: as many as run at once, unless that takes too much memory."""
        grids = [self._grid(k) for k, launch in enumerate(self._launches) if launch.kind == "bricks"]
        if not self._stride or not grids:
            return 0
        return max(1, min(max(grids), self._driver.spec.memory // SCRATCH_SHARE // self._stride))

    def _grid(self, k: int) -> int:
        """Blocks of a launch: of layers one per task, which the device starts as others end, else what runs at once."""
        count = len(self._launches[k].tasks)
        return count if self._launches[k].kind == "layer" else min(count, self._at_once(k))

    def _at_once(self, k: int) -> int:
        return max(1, self._functions[k].resident) * self._driver.spec.cores

    @cached_property
    def _watch(self) -> Watch:
        return Watch(self._driver, len(self._tables))

    @cached_property
    def threads(self) -> int:
        """Blocks that run at the same time: the workers."""
        return max((self._at_once(k) for k in self._functions), default=1)

    @property
    def constant_bytes(self) -> int:
        """See `engine.Program`."""
        return self._constant_bytes

    @property
    def working_bytes(self) -> int:
        """See `engine.Program`."""
        return self._memory.nbytes - self._constant_bytes + self._ends.nbytes

    # ---- launches

    def _prepare_streams(self) -> None:
        self._branches = [self._driver.stream() for _ in range(self._schedule.streams - 1)]
        self._events: dict[int, Event] = {
            k: self._driver.event() for k, turn in enumerate(self._schedule.turns) if turn.recorded
        }
        self._begun = self._driver.event()
        firsts = np.cumsum([0, *(len(launch.tasks) for launch in self._launches)])
        self._firsts: list[int] = firsts[:-1].tolist()

    def _captured(self) -> Graph | None:
        try:
            with self._driver.capture(self._main) as graph:
                self._enqueue(self._main)
            return graph()
        except CaptureRefused as e:
            self.not_captured = str(e)
            print(f"brickrt: no CUDA graph, launching from streams: {e}", file=sys.stderr)
            return None

    def _enqueue(self, main: Stream) -> None:
        """Puts all launches on their streams; those but `main` begin and end with it."""
        streams = [main, *self._branches]
        self._begun.record(main)
        for stream in self._branches:
            stream.wait(self._begun)
        for k, (launch, turn) in enumerate(zip(self._launches, self._schedule.turns, strict=True)):
            for other in turn.waits:
                streams[turn.stream].wait(self._events[other])
            if k in self._calls.layers:
                self._call(k, streams[turn.stream], turn.stream)
            else:
                self._launch(k, launch, streams[turn.stream])
            if turn.recorded:
                self._events[k].record(streams[turn.stream])
        for k in self._schedule.tails:
            main.wait(self._events[k])

    def _launch(self, k: int, launch: Launch, stream: Stream) -> None:
        grid = min(self._grid(k), self._slots) if launch.kind == "bricks" and self._slots else self._grid(k)
        arguments = self._memory["context"], self._firsts[k], len(launch.tasks), k, 0
        self._functions[k].launch(grid, arguments, stream, launch.kind == "persistent")

    def _call(self, k: int, stream: Stream, number: int) -> None:
        """A launch of the library; calls on different streams have workspaces of their own."""
        memory = self._memory
        workspace = memory["workspace"] + number * self._calls.workspace
        self._calls.run(k, memory["arena"], memory["factors"], workspace, stream)

    # ---- running

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        events: list[np.ndarray] | None = None,
        stream: Any = None,
    ) -> Counts:
        """See `engine.Program`; arrays may also be the driver's, used in place.

        With `stream`, and all of them such, the work is only put on it: the next run that waits tells what goes wrong.
        """
        with self._lock:
            return self._run(inputs, outputs, events, stream)

    def _run(
        self, inputs: Sequence[Any], outputs: Sequence[Any], events: list[np.ndarray] | None, stream: Any
    ) -> Counts:
        self._check_cancelled()
        main = self._main if stream is None else self._driver.stream_of(stream)
        main.wait(self._idle)
        if stream is None and not all(isinstance(array, np.ndarray) for array in inputs):
            self._begun.record(self._driver.stream_of(None))
            main.wait(self._begun)
        since = self._watch.since(main) if events else 0
        self._tell(self._ends.upload(inputs, outputs, main), self._watch.address if events else 0, main)
        if self._graph is not None:
            self._graph.launch(main)
        else:
            self._enqueue(main)
        waits = self._ends.download(outputs, main)
        self._idle.record(main)
        total = len(self.tasks)
        if stream is not None and not waits and not events:
            return Counts(total, total, 0, 0)
        counted = self._finish(main)
        if events:
            self._watch.fill(events, self.tasks, self._tables.order, since, main)
        return counted

    def _tell(self, ends: Sequence[int], events: int, main: Stream) -> None:
        """Writes the context and the bases: nothing if no launch needs a new epoch and nothing else is new."""
        self._epoch += 1
        if self._epoch > LAST_EPOCH:
            self._epoch = 1
            self._memory.fill("words", np.zeros(len(self._tables), np.int32), main)
            self._memory.fill("tickets", np.zeros(len(self._launches), np.int64), main)
        if any(launch.kind == "persistent" for launch in self._launches):
            self._context.epoch = self._epoch
        self._context.events = events
        memory = self._memory
        bases = memory["scratch"], memory["arena"], memory["constants"], *ends
        words = np.concatenate([self._context.pack(), np.array(bases, np.uint64).view(np.int64)])
        if not np.array_equal(words, self._told):
            memory.fill("context", words, main)
            self._told = words

    def _finish(self, main: Stream) -> Counts:
        """Waits for the end of a run; what its workers counted. Raises Cancelled and BrickError."""
        sums, stop = np.zeros(COUNTS, np.int64), np.zeros(1, np.int64)
        self._driver.download(sums, self._memory["counts"], main)
        self._driver.download(stop, self._memory["stop"], main)
        main.synchronize()
        self._check_cancelled()
        if stop[0]:
            self._memory.fill("stop", np.zeros(1, np.int64), main)
            main.synchronize()
            raise BrickError(self._why(int(stop[0])))
        _, _, waits, revisits = (sums - self._counted).tolist()
        self._counted = sums
        total = len(self.tasks)
        return Counts(total, total - waits - revisits, waits, revisits)

    def _why(self, word: int) -> str:
        """A stop word in one line that names node and brick."""
        task = word >> 4 & (MOST_TASKS - 1)
        return f"the CUDA engine gave up: {why_stopped(word)}; task {task} is {self._described(task)}"

    def _described(self, task: int) -> str:
        """What a task of the tables computes."""
        number, graph = int(self._tables.order[task]), self.tasks.plan.graph
        for steps in reversed(self.tasks.steps):
            for k in np.flatnonzero(steps.tasks == number)[-1:].tolist():
                ends = ", ".join(f"{a}:{b}" for a, b in zip(steps.boxes.lo[k], steps.boxes.hi[k], strict=True))
                return f"node '{graph.nodes[steps.node].name}', brick [{ends}]"
        return "a join"

    # ---- cancelling

    def cancel(self) -> None:
        """See `engine.Program`."""
        with self._cancelling:
            self._cancelled = True
            self._memory.fill("stop", np.array([CANCELLED], np.int64), self._side)
            self._side.synchronize()

    def _check_cancelled(self) -> None:
        with self._cancelling:
            if self._cancelled:
                self._cancelled = False
                self._memory.fill("stop", np.zeros(1, np.int64), self._side)
                self._side.synchronize()
                raise Cancelled
