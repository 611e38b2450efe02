"""From a task graph to what a program launches: launches, their texts and their tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.runtime.cuda.kernels.kernel_sources import (
    FunctionSource,
    FusedMemory,
    KernelSource,
    function_of,
    source_of,
)
from brickrt.runtime.cuda.schedule.argument_table import ArgumentTable, KernelRecords
from brickrt.runtime.cuda.schedule.launches import Launch
from brickrt.runtime.cuda.schedule.task_table import TaskTable, make_table
from brickrt.runtime.lowering.task_graph import TaskGraph


@dataclass(frozen=True, eq=False)
class ProgramTables:
    """What kernels read. Tasks are numbered in the order of launches: `order[k]` is the graph's number of task k.

    A task waits for `deps[dep_offsets[k]:dep_offsets[k + 1]]`, of its own launch; int32.
    """

    order: np.ndarray
    table: TaskTable
    dep_offsets: np.ndarray
    deps: np.ndarray

    def __len__(self) -> int:
        return len(self.order)


class Units:
    """Texts of launches, and the numbers that their kernels have there: launches of the same steps share a text.

    `of[k]` is the source of launch k, `kernels[k]` the range that its kernels have among those of all texts;
    `numbered` are all records with the numbers of their kernels in their text.
    """

    def __init__(self, arguments: ArgumentTable, launches: Sequence[Launch], threads: int) -> None:
        self.arguments, self._threads, self._count = arguments, threads, 0
        self.sources: dict[KernelSource, int] = {}
        self.of: list[int] = []
        self.kernels: list[range] = []
        self.numbered: list[tuple[KernelRecords, int]] = []
        known: dict[tuple[int, ...], tuple[int, range]] = {}
        for launch in launches:
            if launch.steps not in known:
                known[launch.steps] = self._unit(launch)
            source, kernels = known[launch.steps]
            self.of.append(source)
            self.kernels.append(kernels)

    def _unit(self, launch: Launch) -> tuple[int, range]:
        """The text of a launch, which is new, and its kernels."""
        functions: dict[FunctionSource, int] = {}
        for records in (records for step in launch.steps for records in self.arguments.of(step)):
            number = functions.setdefault(function_of(records.kernel), len(functions))
            self.numbered.append((records, number))
        start, self._count = self._count, self._count + len(functions)
        source = source_of(tuple(functions), launch.kind == "persistent", self._threads, self._fused(launch))
        self._check_room(launch, source)
        return self.sources.setdefault(source, len(self.sources)), range(start, self._count)

    def _fused(self, launch: Launch) -> FusedMemory | None:
        """The shared memory of fused bricks, each of which has one step of a node at most."""
        if launch.kind != "fused":
            return None
        words = sum(records.words.shape[1] for step in launch.steps for records in self.arguments.of(step))
        tasks = self.arguments.tasks
        return FusedMemory(words, tasks.fused_bytes[launch.subgraphs[0]], tasks.plan.device.l1)

    def _check_room(self, launch: Launch, source: KernelSource) -> None:
        """Raises BrickError where blocks would have more shared memory than the device has for one."""
        tasks = self.arguments.tasks
        if source.shared > (most := tasks.plan.device.l1):
            node = tasks.plan.graph.nodes[tasks.steps[launch.steps[-1]].node]
            raise BrickError(
                f"node '{node.name}': blocks that compute it take {source.shared} bytes of shared memory, of which the "
                f"device has {most} for each; give a smaller --brick"
            )


def make_tables(
    tasks: TaskGraph, launches: Sequence[Launch], numbered: Sequence[tuple[KernelRecords, int]]
) -> ProgramTables:
    """The tables of all tasks that are in launches, also of such that the graph does not have."""
    none = np.zeros(0, np.int64)
    order = np.concatenate([none, *(launch.tasks for launch in launches)])
    numbers = max(len(tasks), 1 + int(order.max(initial=-1)))
    place, launch_of = np.full(numbers, -1, np.int64), np.full(numbers, -1, np.int64)
    place[order] = np.arange(len(order))
    for k, launch in enumerate(launches):
        if launch.kind == "persistent":
            launch_of[launch.tasks] = k
    owner = np.repeat(np.arange(len(tasks)), np.diff(tasks.dep_offsets))
    inside = (launch_of[owner] >= 0) & (launch_of[owner] == launch_of[tasks.deps])
    readers, needs = place[owner[inside]], place[tasks.deps[inside]]
    by_reader = np.argsort(readers, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(readers, minlength=len(order)))])
    deps = needs[by_reader].astype(np.int32)
    return ProgramTables(order, make_table(numbered, place, len(order)), offsets.astype(np.int32), deps)
