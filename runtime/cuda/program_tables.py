"""From a task graph to what a program launches: launches, their texts and their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.runtime.cuda.groups.cudnn_layers import Layer
from brickrt.runtime.cuda.kernels.kernel_sources import FunctionSource, KernelSource, function_of, source_of
from brickrt.runtime.cuda.schedule.argument_table import RecordRows, Records, TaskTable, make_table
from brickrt.runtime.cuda.schedule.launches import Launch
from brickrt.runtime.cuda.verify import types
from brickrt.runtime.cuda.verify.expected import base_of, signature, uses
from brickrt.runtime.cuda.verify.types import Signature, Wanted
from brickrt.runtime.cuda.verify.validate import validate
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
    """Texts of launches and the numbers that their kernels have there: launches of the same steps share them.

    `of[k]` is the source of launch k, `kernels[k]` those of all units that are its own; `numbered` are all records with
    the numbers of their kernels in their unit.
    """

    def __init__(self, records: Records, launches: Sequence[Launch], threads: int) -> None:
        self.records, self._threads, self._count = records, threads, 0
        self.sources: dict[KernelSource, int] = {}
        self.of: list[int] = []
        self.kernels: list[range] = []
        self.signatures: list[Signature] = []  # of `numbered`
        self.numbered: list[tuple[RecordRows, int]] = []
        known: dict[tuple[int, ...], tuple[int, range]] = {}
        for launch in launches:
            if launch.steps not in known:
                known[launch.steps] = self._unit(launch)
            source, kernels = known[launch.steps]
            self.of.append(source)
            self.kernels.append(kernels)

    def _unit(self, launch: Launch) -> tuple[int, range]:
        functions: dict[FunctionSource, int] = {}
        start = self._count
        for i, rows in [(step, rows) for step in launch.steps for rows in self.records.of(step)]:
            number = functions.setdefault(function_of(rows.kernel), len(functions))
            self.signatures.append(signature(self.records, i, rows, start + number))
            self.numbered.append((rows, number))
        self._count += len(functions)
        source = source_of(tuple(functions), launch.kind == "persistent", self._threads)
        return self.sources.setdefault(source, len(self.sources)), range(start, self._count)


def make_tables(
    tasks: TaskGraph, launches: Sequence[Launch], numbered: Sequence[tuple[RecordRows, int]]
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


def check_tables(
    tables: ProgramTables,
    launches: Sequence[Launch],
    units: Units,
    base_bytes: Sequence[int],
    owner: np.ndarray,
    calls: Mapping[int, Layer],
) -> None:
    """Raises ValueError where the tables are not what kernels rely on, or do not do what the task graph says.

    `base_bytes` as in `Wanted`; `owner` tells of which task of the graph each task is a part, `calls` what a library
    computes, by launch.
    """
    firsts = np.cumsum([0, *(len(launch.tasks) for launch in launches)]).tolist()
    pieces = [
        types.CheckedLaunch(
            begin, len(launch.tasks), kernels, launch.kind == "persistent", launch.after, launch.kind == "bricks"
        )
        for begin, launch, kernels in zip(firsts, launches, units.kernels, strict=False)
    ]
    table = tables.table
    found = types.CheckedTables(table.task_at, table.records, tables.dep_offsets, tables.deps, pieces)
    validate(found, _wanted(tables, units, base_bytes, owner, calls))


def _wanted(
    tables: ProgramTables, units: Units, base_bytes: Sequence[int], owner: np.ndarray, calls: Mapping[int, Layer]
) -> Wanted:
    graph, places, none = units.records.tasks, units.records.tasks.allocations, np.zeros(0, np.int64)
    place = np.full(len(owner), -1, np.int64)
    place[tables.order] = np.arange(len(tables))
    at = place[np.concatenate([none, *(rows.tasks for rows, _ in units.numbered)])]
    ranks = np.concatenate([none, *(rows.ranks for rows, _ in units.numbered)])
    like = np.repeat(np.arange(len(units.numbered)), [len(rows.tasks) for rows, _ in units.numbered])
    order = np.lexsort((ranks, at))
    types = graph.plan.graph.types
    return Wanted(
        signatures=units.signatures,
        tasks=at[order],
        like=like[order],
        owner=owner[tables.order],
        dep_offsets=graph.dep_offsets,
        deps=graph.deps,
        base_bytes=base_bytes,
        arena=graph.arena_bytes,
        constants=np.array(sorted(offset for offset, _ in units.records.constants.pieces), np.int64),
        ends={name: base_of(graph, name) for name, at in places.items() if at.kind in ("input", "output")},
        outputs=[name for name, at in places.items() if at.kind == "output" and types[name].size],
        uses=list(uses(graph, calls)),
    )
