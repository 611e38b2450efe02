"""Checks the tables that kernels read, before any runs on them: a broken one would hang a GPU, or write anywhere.

Steps are checked by themselves (`steps.py`); that tasks run in the order that the task graph asks for
(`order.py`); and, from what steps read and write, that nothing is read before it is written
(`tensors.py`, `scratch.py`, `buffers.py`). What is not: whether a constant is the right one,
what calls of a library find in buffers, and the caller's arrays.
"""

from __future__ import annotations

import numpy as np

from brickrt.runtime.cuda.kernels.kernel_context import MOST_BASES, MOST_OPERANDS, MOST_RANK, MOST_TASKS
from tests.support.verify.access import find_tensors, in_scratch
from tests.support.verify.buffers import check_buffers
from tests.support.verify.order import Order, check_after, check_graph
from tests.support.verify.scratch import check_scratch
from tests.support.verify.steps import find_steps
from tests.support.verify.tensors import check_tensors
from tests.support.verify.types import CheckedTables, Expected, fail, first


def validate(tables: CheckedTables, expected: Expected) -> None:
    """Raises ValueError, in one line that names a task or a launch, where tables are not what kernels rely on."""
    _check_shapes(tables, expected)
    launch_of = _launches(tables, 1 + max((s.kernel for s in expected.signatures), default=-1))
    _check_deps(tables, launch_of)
    check_after(tables.launches)
    order = Order(tables, launch_of, np.bincount(expected.tasks, minlength=len(tables)) == 0)
    check_graph(order, expected)
    steps = find_steps(tables, launch_of, expected)
    tensors = find_tensors(steps, order, expected)
    check_tensors(tensors, order, expected)
    check_scratch([tensor for tensor in tensors.values() if in_scratch(tensor)], order)
    check_buffers(steps, order, expected)


def _check_shapes(tables: CheckedTables, expected: Expected) -> None:
    arrays = {name: getattr(tables, name) for name in ("task_at", "records", "dep_offsets", "deps")}
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype.kind != "i" or (name == "records" and array.dtype != np.int64):
            fail(f"the {name} are {array.dtype.name} of {array.ndim} dimensions, not a row of whole numbers")
    n = len(tables)
    if n >= MOST_TASKS:
        fail(f"{n} tasks are more than {MOST_TASKS - 1}")
    if len(expected.base_bytes) > MOST_BASES:
        fail(f"{len(expected.base_bytes)} bases are more than {MOST_BASES}: the graph has too many inputs and outputs")
    for one in expected.signatures:
        if one.words > MOST_OPERANDS or one.rank > MOST_RANK:
            fail(f"node '{one.node}': more than {MOST_OPERANDS} operands or {MOST_RANK} dimensions")
    for name, offsets, end in (("records", tables.task_at, tables.records), ("deps", tables.dep_offsets, tables.deps)):
        if n < 0 or len(offsets) != n + 1 or offsets[0] != 0 or offsets[-1] != len(end):
            fail(f"the offsets into {name} do not go from 0 to {len(end)} in {n} tasks")
        if (t := first(np.diff(offsets) < 0)) is not None:
            fail(f"task {t}: its {name} end before they begin")
    if n != len(expected.owner):
        fail(f"{n} tasks are not {len(expected.owner)}")


def _launches(tables: CheckedTables, kernels: int) -> np.ndarray:
    """The launch of every task. Every task is in one."""
    n = len(tables)
    found = np.full(n, -1, np.int64)
    for k, launch in enumerate(tables.launches):
        if launch.kernels.start < 0 or launch.kernels.stop > kernels:
            fail(f"launch {k}: kernels {launch.kernels.start} … {launch.kernels.stop - 1} of {kernels}")
        end = launch.first + launch.count
        if launch.count < 0 or launch.first < 0 or end > n:
            fail(f"launch {k}: tasks {launch.first} … {end - 1} of {n}")
        mine = found[launch.first : end]
        if (i := first(mine >= 0)) is not None:
            fail(f"task {launch.first + i} is in launches {mine[i]} and {k}")
        mine[:] = k
    if (t := first(found < 0)) is not None:
        fail(f"task {t} is in no launch")
    return found


def _check_deps(tables: CheckedTables, launch_of: np.ndarray) -> None:
    """Each task waits for what an earlier launch, or an earlier ticket of its own launch, computes."""
    deps, n = tables.deps, len(tables)
    readers = np.repeat(np.arange(n), np.diff(tables.dep_offsets))
    if (i := first((deps < 0) | (deps >= n))) is not None:
        fail(f"task {readers[i]} waits for task {deps[i]}, which no one runs")
    tickets = np.array([launch.tickets for launch in tables.launches], bool)
    own, others = launch_of[readers], launch_of[deps]
    later = (others > own) | ((others == own) & (deps >= readers) & tickets[own])
    if (i := first(later)) is not None:
        cycle = _cycle(tables, int(readers[i]), int(deps[i]))
        if cycle:
            fail(f"tasks wait for each other: {' → '.join(map(str, cycle))}")
        fail(f"task {readers[i]} waits for task {deps[i]}, which runs after it")
    if (i := first((others == own) & ~tickets[own])) is not None:
        fail(f"task {readers[i]} waits for task {deps[i]} in launch {own[i]}, which runs its tasks in any order")
    if (i := first((others < own) & tickets[own] & ~tickets[others])) is not None:
        fail(
            f"task {readers[i]} waits for task {deps[i]}, of which launch {others[i]} does not say when it is complete"
        )


def _cycle(tables: CheckedTables, reader: int, dep: int) -> list[int]:
    """A way from `dep` through what it waits for to `reader`, and on to `dep`; empty where there is none."""
    came_from, todo = {dep: -1}, [dep]
    while todo and reader not in came_from:
        task = todo.pop()
        for further in tables.deps[tables.dep_offsets[task] : tables.dep_offsets[task + 1]].tolist():
            if 0 <= further < len(tables) and further not in came_from:
                came_from[further] = task
                todo.append(further)
    if reader not in came_from:
        return []
    way = [reader]
    while came_from[way[-1]] >= 0:
        way.append(came_from[way[-1]])
    return [reader, *reversed(way)]
