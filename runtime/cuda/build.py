"""From a task graph to what a program launches: launches, their texts and their tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.runtime.cuda import validate
from brickrt.runtime.cuda.launches import Launch
from brickrt.runtime.cuda.records import Records, Rows, Table, make_table
from brickrt.runtime.cuda.sources import Function, Source, function_of, source_of
from brickrt.runtime.task_graph import TaskGraph


@dataclass(frozen=True, eq=False)
class Tables:
    """What kernels read. Tasks are numbered in the order of launches: `order[k]` is the graph's number of task k.

    A task waits for `deps[dep_offsets[k]:dep_offsets[k + 1]]`, of its own launch; int32.
    """

    order: np.ndarray
    table: Table
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
        self._records, self._threads = records, threads
        self.sources: dict[Source, int] = {}
        self.of: list[int] = []
        self.kernels: list[range] = []
        self.signatures: list[list[validate.Signature]] = []  # of each kernel of each unit, what calls it
        self.numbered: list[tuple[Rows, int]] = []
        known: dict[tuple[int, ...], tuple[int, range]] = {}
        for launch in launches:
            if launch.steps not in known:
                known[launch.steps] = self._unit(launch)
            source, kernels = known[launch.steps]
            self.of.append(source)
            self.kernels.append(kernels)

    def _unit(self, launch: Launch) -> tuple[int, range]:
        functions: dict[Function, int] = {}
        start = len(self.signatures)
        for rows in (rows for i in launch.steps for rows in self._records.of(i)):
            kernel = rows.kernel
            number = functions.setdefault(function_of(kernel), len(functions))
            if start + number == len(self.signatures):
                self.signatures.append([])
            operands = 1 + len(kernel.ins) + len(kernel.tables())
            self.signatures[start + number].append(validate.Signature(kernel.op.name, operands, kernel.out))
            self.numbered.append((rows, number))
        source = source_of(tuple(functions), launch.kind == "persistent", self._threads)
        return self.sources.setdefault(source, len(self.sources)), range(start, len(self.signatures))


def make_tables(tasks: TaskGraph, launches: Sequence[Launch], numbered: Sequence[tuple[Rows, int]]) -> Tables:
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
    return Tables(order, make_table(numbered, place, len(order)), offsets.astype(np.int32), deps)


def check_tables(tables: Tables, launches: Sequence[Launch], units: Units, base_bytes: Sequence[int]) -> None:
    """Raises ValueError where the tables are not what kernels rely on; `base_bytes` as in `validate.py`."""
    firsts = np.cumsum([0, *(len(launch.tasks) for launch in launches)]).tolist()
    pieces = [
        validate.Launch(first, len(launch.tasks), kernels, launch.kind == "persistent")
        for first, launch, kernels in zip(firsts, launches, units.kernels, strict=False)
    ]
    table = tables.table
    found = validate.Tables(table.task_at, table.records, tables.dep_offsets, tables.deps, pieces)
    validate.validate(found, units.signatures, base_bytes)
