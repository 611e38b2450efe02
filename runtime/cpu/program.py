"""A compiled program of the CPU engine, and its runs."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np

from brickrt.graph.host.helpers import Helpers
from brickrt.graph.uncollected import uncollected
from brickrt.ops.cpu.compile import LoadedObjects
from brickrt.ops.cpu.isa import Isa
from brickrt.runtime.cpu.argument_table import ArgumentTable, SharedTables
from brickrt.runtime.cpu.compile.load import KernelLoader, load_module
from brickrt.runtime.cpu.engine_memory import EngineMemory
from brickrt.runtime.cpu.memory import give_back_freed
from brickrt.runtime.cpu.worker_program import ProgramMemory, WorkerCode, WorkerProgram, WorkerTables
from brickrt.runtime.cpu.workers import worker_loop as loop
from brickrt.runtime.cpu.workers.compiled_mailbox import compiled_mailbox
from brickrt.runtime.cpu.workers.task_places import places_of
from brickrt.runtime.cpu.workers.thread_pool import Jobs, thread_pool
from brickrt.runtime.cpu.working_memory import Need
from brickrt.runtime.lowering.owned_constants import ConstantValues, OwnedConstants
from brickrt.runtime.lowering.task_graph import TaskGraph
from brickrt.runtime.progress import KernelProgress


@dataclass(frozen=True, eq=False)
class ProgramParts:
    """What a program is made of."""

    tables: WorkerTables
    memory: ProgramMemory
    code: WorkerCode


class ProgramSeries:
    """Programs of task graphs of one plan, which are taken one by one and not held: thousands of them may be alike but
    for a few numbers, and of each stays what workers read. Kernels and packed constants are made once for all, but for
    constants that other programs of the `memory` have. Kernels are `broad` where other sizes are likely to follow."""

    def __init__(
        self,
        isa: Isa,
        threads: int,
        values: ConstantValues,
        progress: KernelProgress | None = None,
        memory: EngineMemory | None = None,
        broad: bool = False,
    ) -> None:
        self.isa, self.threads, self.progress = isa, threads, progress
        memory = EngineMemory() if memory is None else memory
        self._loader, self._working, self._need = KernelLoader(broad), memory.working(), Need(0, 0, threads)
        self._shared = SharedTables(self._loader.want, None, values, memory.packed)
        self._libraries, self._addresses = list[LoadedObjects](), list[int]()

    def make(self, task_graphs: Iterable[TaskGraph], reserve: bool = True) -> list[WorkerProgram]:
        """A program of each of several task graphs (see `parts`)."""
        return [WorkerProgram(one.tables, one.memory, one.code) for one in self.parts(task_graphs, reserve)]

    def parts(
        self, task_graphs: Iterable[TaskGraph], reserve: bool = True, arithmetic: bool = True
    ) -> list[ProgramParts]:
        """The parts of a program of each of several task graphs; one thread at a time may ask. What they run in has
        room for all that were made so far: with `reserve` now, which is for when none of them runs, else once they run.
        Without `arithmetic` no kernel runs."""
        shared, tables = self._shared, list[WorkerTables]()
        with self._loader, ThreadPoolExecutor(self.threads) as shared.packers:
            with uncollected():
                for tasks in task_graphs:
                    need = Need(tasks.arena_bytes, tasks.scratch_bytes, self.threads)
                    if reserve:  # pages are new while tables are written
                        shared.packers.submit(self._working.reserve, need)
                    table = ArgumentTable(tasks, self.isa, shared)
                    if arithmetic:
                        table.add_all()
                    tables.append(worker_tables(table))
                    self._need = self._need.joined(need.more_scratch(table.workspace))
            if len(self._addresses) < len(shared.kernels):
                self._libraries, self._addresses = self._loader.load(self.progress)
            constants = [packed.result() for packed in shared.constants.values()]
        code = WorkerCode(self._addresses, worker_address(self.isa), thread_pool(compiled_mailbox), self._libraries)
        if reserve:
            self._working.reserve(self._need)
        give_back_freed()
        return [ProgramParts(one, ProgramMemory(constants, self._need, self._working), code) for one in tables]


class CpuProgram(WorkerProgram):
    """Kernels, argument table and memory of one task graph. `run` may be called from any thread; runs take turns."""

    @staticmethod
    def build(
        tasks: TaskGraph,
        isa: Isa,
        threads: int,
        arithmetic: bool = True,
        progress: KernelProgress | None = None,
        constants: dict[str, np.ndarray] | None = None,
        memory: EngineMemory | None = None,
    ) -> CpuProgram:
        """Compiles a program. Takes over `constants`, values by name, and drops each once it is packed; without them
        the graph's are used. Without `arithmetic` no kernel runs. `memory` is what it shares with other programs."""
        values = OwnedConstants(tasks, constants)
        series = ProgramSeries(isa, threads, values, progress, memory, tasks.open_sizes)
        (parts,) = series.parts([tasks], arithmetic=arithmetic)
        return CpuProgram(parts, tasks)

    def __init__(self, parts: ProgramParts, tasks: TaskGraph) -> None:
        """The program of a task graph, of its parts."""
        super().__init__(parts.tables, parts.memory, parts.code)
        self.tasks = tasks


def host_helpers(threads: int) -> Helpers:
    """So many threads, those of the pool, for compiled loops of the host."""
    return Helpers(threads, lambda calls: thread_pool(compiled_mailbox).run(Jobs(calls)))


def worker_tables(table: ArgumentTable) -> WorkerTables:
    """The tables of a program, once all of its steps are in the argument table."""
    tasks, graph = table.tasks, table.tasks.plan.graph
    waits = tasks.dep_offsets.astype(np.int64), tasks.deps.astype(np.int64)
    return WorkerTables(*table.finish(), *waits, places_of(tasks), len(graph.inputs) + len(graph.outputs))


@cache
def worker_address(isa: Isa) -> int:
    """The workers' loop."""
    return load_module("worker", loop.worker_module, isa).address("worker")
