"""Cheap checks of the tables that kernels read, at each build: a broken one would hang a GPU, or write anywhere.

They take time in proportion to the tasks. What steps read and write is not looked at here: the tests verify that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from brickrt.runtime.cuda.blueprint import Blueprint
from brickrt.runtime.cuda.kernels.kernel_context import MOST_TASKS
from brickrt.runtime.cuda.program_tables import ProgramTables
from brickrt.runtime.cuda.schedule.launches import Launch


def check_tables(blueprint: Blueprint) -> None:
    """Raises ValueError, in one line, where the tables are not those of the launches, or tasks could wait forever."""
    tables, launches = blueprint.tables, blueprint.launches
    _check_launches(tables, launches)
    _check_offsets("records", tables.table.task_at, tables.table.records, np.dtype(np.int64))
    _check_offsets("deps", tables.dep_offsets, tables.deps, np.dtype(np.int32))
    if not len(tables.table.task_at) == len(tables.dep_offsets) == len(tables) + 1:
        raise ValueError(f"the tables of {len(tables)} tasks have offsets of {len(tables.dep_offsets) - 1}")
    _check_deps(tables, launches)


def _check_launches(tables: ProgramTables, launches: Sequence[Launch]) -> None:
    """Each task is in one launch, each launch comes after earlier ones."""
    count = sum(len(launch.tasks) for launch in launches)
    if not count == len(tables) < MOST_TASKS:
        raise ValueError(f"{len(tables)} tasks are not the {count} of all launches, or more than {MOST_TASKS - 1}")
    if len(tables) and np.bincount(tables.order).max() > 1:
        raise ValueError(f"task {int(np.bincount(tables.order).argmax())} of the graph is launched twice")
    for k, launch in enumerate(launches):
        if any(not 0 <= other < k for other in launch.after):
            raise ValueError(f"launch {k} comes after launches {launch.after}, which are not all earlier ones")


def _check_offsets(name: str, offsets: np.ndarray, values: np.ndarray, dtype: np.dtype) -> None:
    """`values` are cut in rows without gaps."""
    if (offsets.dtype, values.dtype) != (np.dtype(np.int32), dtype) or (offsets.ndim, values.ndim) != (1, 1):
        raise ValueError(f"the {name} are {values.dtype.name}, their offsets {offsets.dtype.name}")
    if offsets[0] != 0 or offsets[-1] != len(values) or (np.diff(offsets) < 0).any():
        raise ValueError(f"the offsets into {name} do not go from 0 to {len(values)}")


def _check_deps(tables: ProgramTables, launches: Sequence[Launch]) -> None:
    """Tasks wait for earlier ones, of the same launch, which takes tickets."""
    counts = np.array([len(launch.tasks) for launch in launches], np.int64)
    firsts = np.repeat(np.cumsum(counts) - counts, counts)
    takes_tickets = np.repeat(np.array([launch.kind == "persistent" for launch in launches], bool), counts)
    readers = np.repeat(np.arange(len(tables)), np.diff(tables.dep_offsets))
    wrong = (tables.deps < firsts[readers]) | (tables.deps >= readers) | ~takes_tickets[readers]
    if wrong.any():
        i = int(wrong.argmax())
        raise ValueError(f"task {readers[i]} waits for task {tables.deps[i]}, which is no earlier one of its launch")
