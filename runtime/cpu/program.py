"""A compiled program of the CPU engine, and its runs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np

from brickrt.ops.cpu.compile import Library
from brickrt.ops.cpu.isa import Isa
from brickrt.runtime.cpu import worker as loop
from brickrt.runtime.cpu.kernels import KernelLoader, Progress
from brickrt.runtime.cpu.memory import aligned_empty, give_back_freed
from brickrt.runtime.cpu.records import ARENA, SCRATCH, Records
from brickrt.runtime.engine import Counts
from brickrt.runtime.states import word
from brickrt.runtime.task_graph import TaskGraph


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads for all programs of the process; they sleep between runs."""
    return ThreadPoolExecutor(max_workers=256, thread_name_prefix="brickrt")


class CpuProgram:
    """Kernels, argument table and memory of one task graph. `run` may be called from any thread; runs take turns.

    The constants of the plan's graph are packed and then released: afterwards only their types are known there.
    """

    def __init__(
        self, tasks: TaskGraph, isa: Isa, threads: int, arithmetic: bool = True, progress: Progress | None = None
    ):
        self.tasks, self.threads = tasks, threads
        self._library: Library | None = None  # held, since the kernels' addresses are good for as long as it lives
        addresses: list[int] = []
        with KernelLoader(isa) as loader, ThreadPoolExecutor(threads) as packers:
            records = Records(tasks, isa, loader.want, packers)
            for steps in tasks.steps if arithmetic else ():
                records.add(steps)
            if records.kernels:
                self._library, addresses = loader.load(progress)
            self._constants = [packed.result() for packed in records.constants.values()]
        self._first_step, self._step_at, self._records = records.finish()
        self._kernels = np.array(addresses, np.int64)
        self._worker, self._worker_library = loop.worker_function(isa)
        self._dep_offsets, self._deps = tasks.dep_offsets.astype(np.int64), tasks.deps.astype(np.int64)
        self._words = np.zeros(max(len(tasks), 1), np.int64)
        self._arena = aligned_empty(tasks.arena_bytes)
        self._scratch = [aligned_empty(tasks.scratch_bytes + records.workspace) for _ in range(threads)]
        self._epoch = 0
        self._lock = threading.Lock()
        give_back_freed()

    @property
    def constant_bytes(self) -> int:
        return sum(a.nbytes for a in self._constants)

    @property
    def working_bytes(self) -> int:
        """Memory that the program holds between runs, constants aside."""
        own = self._records.nbytes + self._step_at.nbytes + self._first_step.nbytes + self._words.nbytes
        own += self._deps.nbytes + self._dep_offsets.nbytes
        return self._arena.nbytes + sum(s.nbytes for s in self._scratch) + own

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
        ticket = np.zeros(1, np.int64)
        context = self._context(ticket)
        ends = [a.ctypes.data for a in (*inputs, *outputs, *self._constants)]
        bases = np.array([[0, 0, *ends]] * self.threads, np.int64)
        bases[:, SCRATCH] = [s.ctypes.data for s in self._scratch]
        bases[:, ARENA] = self._arena.ctypes.data
        stats = np.zeros((self.threads, 8), np.int64)

        def work(k: int) -> None:
            watched = events[k].ctypes.data if events else 0
            self._worker(context.ctypes.data, bases[k].ctypes.data, stats[k].ctypes.data, watched)

        others = [_pool().submit(work, k) for k in range(1, self.threads)]
        work(0)
        for other in others:
            other.result()
        return Counts(*stats[:, :4].sum(axis=0).tolist())

    def _context(self, ticket: np.ndarray) -> np.ndarray:
        context = np.zeros(loop.CONTEXT_WORDS, np.int64)
        context[loop.TASKS], context[loop.EPOCH] = len(self.tasks), word(self._epoch, 0)
        for k, array in (
            (loop.TICKET, ticket),
            (loop.WORDS, self._words),
            (loop.DEP_OFFSETS, self._dep_offsets),
            (loop.DEPS, self._deps),
            (loop.TASK_STEPS, self._first_step),
            (loop.STEP_AT, self._step_at),
            (loop.RECORDS, self._records),
            (loop.KERNELS, self._kernels),
        ):
            context[k] = array.ctypes.data
        return context
