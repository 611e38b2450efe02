"""A compiled program of the CPU engine, and its runs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from brickrt.ops.cpu.compile import LoadedObjects
from brickrt.ops.cpu.isa import Isa
from brickrt.runtime.after_fork import tell_children
from brickrt.runtime.cpu.argument_table import ArgumentTable, SharedTables
from brickrt.runtime.cpu.compile.load import KernelLoader, load_module
from brickrt.runtime.cpu.memory import aligned_empty, give_back_freed
from brickrt.runtime.cpu.workers import worker_loop as loop
from brickrt.runtime.cpu.workers.io_addresses import IoAddresses
from brickrt.runtime.cpu.workers.queues import queues
from brickrt.runtime.cpu.workers.thread_pool import Jobs, thread_pool
from brickrt.runtime.lowering.owned_constants import ConstantValues, OwnedConstants
from brickrt.runtime.lowering.task_graph import TaskGraph
from brickrt.runtime.program_protocol import Cancelled, Counts
from brickrt.runtime.progress import KernelProgress
from brickrt.runtime.state_words import word

_TASKS, _FIRST, _WAITS, _REVISITS = loop.SUMS
_SUMS = slice(loop.SUMS.start, loop.SUMS.stop)
_ZEROS = np.zeros(len(loop.SUMS), np.int64).data


@dataclass
class ProgramParts:
    """Several argument tables of one plan with their kernels, constants and memory, of which programs are made."""

    isa: Isa
    threads: int
    tables: list[ArgumentTable]
    constants: list[np.ndarray]
    addresses: list[int]
    arena: np.ndarray
    scratch: list[np.ndarray]
    library: LoadedObjects | None  # held: the kernels' addresses are good for as long as it lives


def compile_parts(
    task_graphs: Sequence[TaskGraph],
    isa: Isa,
    threads: int,
    values: ConstantValues,
    progress: KernelProgress | None = None,
    arithmetic: bool = True,
) -> ProgramParts:
    """Compiles what no cache has, and packs constants once for all task graphs. They do not run at the same time: arena
    and scratch are those of the largest."""
    library: LoadedObjects | None = None
    addresses: list[int] = []
    with KernelLoader(isa) as loader, ThreadPoolExecutor(threads) as packers:
        shared = SharedTables(loader.want, packers, values)
        tables = [ArgumentTable(tasks, isa, shared) for tasks in task_graphs]
        for table in tables if arithmetic else ():
            table.add_all()
        if shared.kernels:
            library, addresses = loader.load(progress)
        constants = [packed.result() for packed in shared.constants.values()]
    scratch = max(table.tasks.scratch_bytes + table.workspace for table in tables)
    arena = shared.memory.empty(max(tasks.arena_bytes for tasks in task_graphs))
    memory = [shared.memory.empty(scratch) for _ in range(threads)]
    return ProgramParts(isa, threads, tables, constants, addresses, arena, memory, library)


class CpuProgram:
    """Kernels, argument table and memory of one task graph. `run` may be called from any thread; runs take turns."""

    @staticmethod
    def build(
        tasks: TaskGraph,
        isa: Isa,
        threads: int,
        arithmetic: bool = True,
        progress: KernelProgress | None = None,
        constants: dict[str, np.ndarray] | None = None,
    ) -> CpuProgram:
        """Compiles a program. Takes over `constants`, values by name, and drops each once it is packed; without them
        the graph's are used. Without `arithmetic` no kernel runs."""
        values = OwnedConstants(tasks, constants)
        parts = compile_parts([tasks], isa, threads, values, progress, arithmetic)
        return CpuProgram(parts, parts.tables[0])

    def __init__(self, parts: ProgramParts, table: ArgumentTable):
        """The program of one of the tables."""
        self.tasks, self.threads, self.notes = table.tasks, parts.threads, dict[str, str]()
        tasks, self._library, self._constants = self.tasks, parts.library, parts.constants
        self._first_step, self._step_at, self._records = table.finish()
        self._kernels = np.array(parts.addresses, np.int64)
        self._dep_offsets, self._deps = tasks.dep_offsets.astype(np.int64), tasks.deps.astype(np.int64)
        self._queue_at, self._queue = queues(tasks, self.threads)
        self._words = np.zeros(max(len(tasks), 1), np.int64)
        self._arena, self._scratch = parts.arena, parts.scratch
        self._epoch, self._lock = 0, threading.Lock()
        graph = tasks.plan.graph
        self._io = IoAddresses(len(graph.inputs) + len(graph.outputs))
        shared = self._shared()
        self._context = shared.data  # of which Python sets single words, fast
        self._bases = self._tables_of_bases()
        self._own = self._workers()
        self._jobs = self._work(shared, parts.isa)
        give_back_freed()
        tell_children(self)

    def after_fork(self) -> None:
        """See `Forked`: of a run that another thread had under way nothing is left but words of its epoch."""
        self._lock = threading.Lock()
        self._context[loop.CANCEL] = 0
        self._own[:, loop.EVENTS] = 0

    @cached_property
    def constant_bytes(self) -> int:
        """Memory of the packed constants."""
        return sum(a.nbytes for a in self._constants)

    @cached_property
    def working_bytes(self) -> int:
        """Memory that the program holds between runs, constants aside."""
        tables = self._records, self._step_at, self._first_step, self._words, self._deps, self._dep_offsets, self._queue
        return sum(array.nbytes for array in (self._arena, *self._scratch, *tables))

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
        context[loop.EPOCH] = word(self._epoch, 0)
        context[_SUMS] = _ZEROS
        self._io.put((*inputs, *outputs))
        for k, rows in enumerate(events or ()):
            self._own[k, loop.EVENTS] = rows.__array_interface__["data"][0]
        thread_pool().run(self._jobs)
        if events:
            self._own[:, loop.EVENTS] = 0
        if context[loop.CANCEL]:
            context[loop.CANCEL] = 0
            raise Cancelled
        return Counts(context[_TASKS], context[_FIRST], context[_WAITS], context[_REVISITS])

    def cancel(self) -> None:
        """See `Program`."""
        self._context[loop.CANCEL] = 1

    # ---- what the workers read

    def _shared(self) -> np.ndarray:
        """The context; epoch, sums and the addresses of inputs and outputs are set by each run."""
        context = np.zeros(loop.CONTEXT_WORDS, np.int64)
        context[loop.QUEUES], context[loop.N_IO] = self.threads, len(self._io.places)
        for k, array in (
            (loop.WORDS, self._words),
            (loop.QUEUE_AT, self._queue_at),
            (loop.QUEUE, self._queue),
            (loop.DEP_OFFSETS, self._dep_offsets),
            (loop.DEPS, self._deps),
            (loop.TASK_STEPS, self._first_step),
            (loop.STEP_AT, self._step_at),
            (loop.RECORDS, self._records),
            (loop.KERNELS, self._kernels),
            (loop.IO_WORDS, self._io.places),
        ):
            context[k] = array.ctypes.data
        return context

    def _tables_of_bases(self) -> np.ndarray:
        """Per worker scratch, arena, inputs and outputs (the worker gets them in each run), constants."""
        io = [0] * len(self._io.places)
        constants = [a.ctypes.data for a in self._constants]
        return np.array([[s.ctypes.data, self._arena.ctypes.data, *io, *constants] for s in self._scratch], np.int64)

    def _workers(self) -> np.ndarray:
        """What each worker has to itself, in cache lines of its own."""
        words = -(-(loop.HEADS + self.threads) // 8) * 8
        own = aligned_empty(8 * words * self.threads).view(np.int64).reshape(self.threads, words)
        own[:] = 0
        own[:, loop.HOME] = np.arange(self.threads)
        own[:, loop.BASES] = [row.ctypes.data for row in self._bases]
        return own

    def _work(self, shared: np.ndarray, isa: Isa) -> Jobs:
        """The workers as jobs of the thread pool."""
        context, function = shared.ctypes.data, worker_address(isa)
        return Jobs([(function, context, row.ctypes.data) for row in self._own])


@cache
def worker_address(isa: Isa) -> int:
    """The workers' loop."""
    return load_module(loop.worker_module(), isa).address("worker")
