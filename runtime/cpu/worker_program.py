"""A program as compiled workers run it: tables, addresses and memory. Nothing here needs the compiler."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from brickrt.runtime.after_fork import tell_children
from brickrt.runtime.counts import Cancelled, Counts
from brickrt.runtime.cpu.memory import aligned_empty
from brickrt.runtime.cpu.workers import context_words as at
from brickrt.runtime.cpu.workers.io_addresses import IoAddresses
from brickrt.runtime.cpu.workers.queues import queues
from brickrt.runtime.cpu.workers.thread_pool import Jobs, ThreadPool
from brickrt.runtime.cpu.working_memory import ARENA, SCRATCH, SCRATCH_HEAD, Buffers, Need, WorkingMemory
from brickrt.runtime.state_words import word

_TASKS, _FIRST, _WAITS, _REVISITS = at.SUMS
_SUMS = slice(at.SUMS.start, at.SUMS.stop)
_ZEROS = np.zeros(len(at.SUMS), np.int64).data


@dataclass(frozen=True, eq=False)
class WorkerTables:
    """What does not depend on this process or its number of threads, int64: `first_step` [T + 1] of each task, where
    each step's record begins, the records; what tasks wait for, in CSR form; `places` [T], float64, of tasks in their
    tensors; `io_count` inputs and outputs."""

    first_step: np.ndarray
    step_at: np.ndarray
    records: np.ndarray
    dep_offsets: np.ndarray
    deps: np.ndarray
    places: np.ndarray
    io_count: int


@dataclass(frozen=True, eq=False)
class ProgramMemory:
    """Packed constants, uint8; and where runs get their arena and the workers' scratch from, with how much they
    need."""

    constants: Sequence[np.ndarray]
    need: Need
    working: WorkingMemory


@dataclass(frozen=True, eq=False)
class WorkerCode:
    """Addresses of the kernels and of the workers' loop, and the threads that run it. `held` lives as long as a
    program, for the addresses to be good."""

    kernels: Sequence[int]
    worker: int
    pool: ThreadPool
    held: object = field(default=None, repr=False)


class WorkerProgram:
    """Tables, code and memory of one task graph. `run` may be called from any thread; runs take turns."""

    def __init__(self, tables: WorkerTables, memory: ProgramMemory, code: WorkerCode) -> None:
        self.threads, self.notes = memory.need.threads, dict[str, str]()
        self.tables, self._memory, self._code = tables, memory, code
        self._kernels = np.array(code.kernels, np.int64)
        self._queue_at, self._queue = queues(tables.places, self.threads)
        self._words = np.zeros(max(len(tables.dep_offsets) - 1, 1), np.int64)
        self._epoch, self._lock = 0, threading.Lock()
        self._io = IoAddresses(tables.io_count)
        shared = self._shared()
        self._context = shared.data  # of which Python sets single words, fast
        self._bases, self._placed = self._tables_of_bases(), 0
        self._own = self._workers()
        self._jobs = Jobs([(code.worker, shared.ctypes.data, row.ctypes.data) for row in self._own])
        tell_children(self)

    def after_fork(self) -> None:
        """See `Forked`: of a run that another thread had under way nothing is left but words of its epoch."""
        self._lock = threading.Lock()
        self._context[at.CANCEL] = 0
        self._own[:, at.EVENTS] = 0

    @cached_property
    def constant_bytes(self) -> int:
        """Memory of the packed constants."""
        return sum(a.nbytes for a in self._memory.constants)

    @cached_property
    def working_bytes(self) -> int:
        """Memory that a run uses, constants aside."""
        tables = self.tables
        held = tables.records, tables.step_at, tables.first_step, tables.deps, tables.dep_offsets
        return self._memory.need.nbytes + sum(array.nbytes for array in (*held, self._words, self._queue))

    @property
    def held(self) -> dict[int, int]:
        """See `Program`: arena and scratch are not its own."""
        own = self.working_bytes - self._memory.need.nbytes
        return {id(self): own} | {id(array): array.nbytes for array in self._memory.constants}

    def run(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], events: list[np.ndarray] | None = None
    ) -> Counts:
        """Computes `outputs` (written in place) from `inputs`: C-contiguous arrays of the graph's types, in its order.

        `events` are int64 arrays [tasks, EVENT_WORDS], one per worker, for the workers to fill in; unused rows stay.
        """
        with self._lock:
            return self._run(inputs, outputs, events)

    def _run(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], events: list[np.ndarray] | None
    ) -> Counts:
        self._epoch += 1
        context = self._context
        context[at.EPOCH] = word(self._epoch, 0)
        context[_SUMS] = _ZEROS
        self._io.put((*inputs, *outputs))
        for k, rows in enumerate(events or ()):
            self._own[k, at.EVENTS] = rows.__array_interface__["data"][0]
        lent = self._memory.working.lend(self._memory.need)
        try:
            if lent.number != self._placed:
                self._place(lent)
            self._code.pool.run(self._jobs)
        finally:
            self._memory.working.take_back(lent)
        if events:
            self._own[:, at.EVENTS] = 0
        if context[at.CANCEL]:
            context[at.CANCEL] = 0
            raise Cancelled
        return Counts(context[_TASKS], context[_FIRST], context[_WAITS], context[_REVISITS])

    @property
    def constants(self) -> Sequence[np.ndarray]:
        """The packed constants."""
        return self._memory.constants

    def move_constants(self, constants: Sequence[np.ndarray]) -> None:
        """Reads the packed constants elsewhere from the next run on: copies of the same bytes."""
        with self._lock:
            self._memory = replace(self._memory, constants=constants)
            self._bases[:, -len(constants) or self._bases.shape[1] :] = [a.ctypes.data for a in constants]

    def cancel(self) -> None:
        """See `Program`."""
        self._context[at.CANCEL] = 1

    # ---- what the workers read

    def _shared(self) -> np.ndarray:
        """The context; epoch, sums and the addresses of inputs and outputs are set by each run."""
        context, tables = np.zeros(at.CONTEXT_WORDS, np.int64), self.tables
        context[at.QUEUES], context[at.N_IO] = self.threads, len(self._io.places)
        for k, array in (
            (at.WORDS, self._words),
            (at.QUEUE_AT, self._queue_at),
            (at.QUEUE, self._queue),
            (at.DEP_OFFSETS, tables.dep_offsets),
            (at.DEPS, tables.deps),
            (at.TASK_STEPS, tables.first_step),
            (at.STEP_AT, tables.step_at),
            (at.RECORDS, tables.records),
            (at.KERNELS, self._kernels),
            (at.IO_WORDS, self._io.places),
        ):
            context[k] = array.ctypes.data
        return context

    def _tables_of_bases(self) -> np.ndarray:
        """Per worker scratch, arena, inputs and outputs (set in each run), constants."""
        constants = [a.ctypes.data for a in self._memory.constants]
        return np.array([[0, 0, *[0] * len(self._io.places), *constants]] * self.threads, np.int64)

    def _place(self, lent: Buffers) -> None:
        """Has the workers use these buffers."""
        self._bases[:, SCRATCH] = [array.ctypes.data + SCRATCH_HEAD for array in lent.scratch[: self.threads]]
        self._bases[:, ARENA] = lent.arena.ctypes.data
        self._placed = lent.number

    def _workers(self) -> np.ndarray:
        """What each worker has to itself, in cache lines of its own."""
        words = -(-(at.HEADS + self.threads) // 8) * 8
        own = aligned_empty(8 * words * self.threads).view(np.int64).reshape(self.threads, words)
        own[:] = 0
        own[:, at.HOME] = np.arange(self.threads)
        own[:, at.BASES] = [row.ctypes.data for row in self._bases]
        return own
