"""Checks the tables that kernels read, before any runs on them: a broken one would hang a GPU, or write anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.ops.cuda.operand import Operand
from brickrt.runtime.cuda.context import BASE_SHIFT, HEAD_WORDS, MOST_BASES, MOST_OPERANDS, MOST_RANK, MOST_TASKS

_LOW = np.int64((1 << 32) - 1)


@dataclass(frozen=True)
class Launch:
    """Tasks that one kernel launch runs.

    By tickets, tasks may wait for others of the launch, and say that they are complete; in turn they do neither.
    Their records number kernels from `kernels.start` on.
    """

    first: int
    count: int
    kernels: range
    tickets: bool = False


@dataclass(frozen=True, eq=False)
class Tables:
    """As the words of `Context` point to them; launches in the order in which they are issued."""

    task_at: np.ndarray
    records: np.ndarray
    dep_offsets: np.ndarray
    deps: np.ndarray
    launches: Sequence[Launch]

    def __len__(self) -> int:
        return len(self.task_at) - 1


@dataclass(frozen=True)
class Signature:
    """What a step of a kernel must look like: how many operands, and how its output lies in memory."""

    name: str
    operands: int
    out: Operand


def validate(tables: Tables, kernels: Sequence[Sequence[Signature]], base_bytes: Sequence[int]) -> None:
    """Raises ValueError, in one line that names a task, where the tables are not what the kernels rely on.

    Steps of `kernels[k]` are as one of its signatures, which have the same operands and rank. `base_bytes` are the
    sizes of what the bases point to; of scratch, that of one slot.
    """
    _check_shapes(tables, kernels, base_bytes)
    launch_of = _launches(tables, len(kernels))
    _check_deps(tables, launch_of)
    tasks, places, chosen = _walk(tables, launch_of, [like[0] for like in kernels])
    by_kernel = np.argsort(chosen, kind="stable")
    ends = np.searchsorted(chosen[by_kernel], np.arange(len(kernels) + 1))
    for k, like in enumerate(kernels):
        rows = by_kernel[ends[k] : ends[k + 1]]
        if len(rows):
            _check_steps(tables.records, tasks[rows], places[rows], like, np.asarray(base_bytes, np.int64))


def _fail(text: str) -> None:
    raise ValueError(text)


def _first(broken: np.ndarray) -> int | None:
    """Index of the first true element, if any."""
    k = int(broken.argmax()) if broken.size else 0
    return k if broken.size and broken[k] else None


def _check_shapes(tables: Tables, kernels: Sequence[Sequence[Signature]], base_bytes: Sequence[int]) -> None:
    n = len(tables)
    if n >= MOST_TASKS:
        _fail(f"{n} tasks are more than {MOST_TASKS - 1}")
    if len(base_bytes) > MOST_BASES:
        _fail(f"{len(base_bytes)} bases are more than {MOST_BASES}: the graph has too many inputs and outputs")
    for kernel in (one for like in kernels for one in like):
        if kernel.operands > MOST_OPERANDS or kernel.out.rank > MOST_RANK:
            _fail(f"kernel {kernel.name}: more than {MOST_OPERANDS} operands or {MOST_RANK} dimensions")
    for name, offsets, end in (("records", tables.task_at, tables.records), ("deps", tables.dep_offsets, tables.deps)):
        if len(offsets) != n + 1 or offsets[0] != 0 or offsets[-1] != len(end):
            _fail(f"the offsets into {name} do not go from 0 to {len(end)} in {n} tasks")
        if (t := _first(np.diff(offsets) < 0)) is not None:
            _fail(f"task {t}: its {name} end before they begin")


def _launches(tables: Tables, kernels: int) -> np.ndarray:
    """The launch of every task. Every task is in one."""
    n = len(tables)
    found = np.full(n, -1, np.int64)
    for k, launch in enumerate(tables.launches):
        if launch.kernels.start < 0 or launch.kernels.stop > kernels:
            _fail(f"launch {k}: kernels {launch.kernels.start} … {launch.kernels.stop - 1} of {kernels}")
        end = launch.first + launch.count
        if launch.count < 0 or launch.first < 0 or end > n:
            _fail(f"launch {k}: tasks {launch.first} … {end - 1} of {n}")
        mine = found[launch.first : end]
        if (i := _first(mine >= 0)) is not None:
            _fail(f"task {launch.first + i} is in launches {mine[i]} and {k}")
        mine[:] = k
    if (t := _first(found < 0)) is not None:
        _fail(f"task {t} is in no launch")
    return found


def _check_deps(tables: Tables, launch_of: np.ndarray) -> None:
    """Each task waits for what an earlier launch, or an earlier ticket of its own launch, computes."""
    deps, n = tables.deps, len(tables)
    readers = np.repeat(np.arange(n), np.diff(tables.dep_offsets))
    if (i := _first((deps < 0) | (deps >= n))) is not None:
        _fail(f"task {readers[i]} waits for task {deps[i]}, which no one runs")
    tickets = np.array([launch.tickets for launch in tables.launches], bool)
    own, others = launch_of[readers], launch_of[deps]
    later = (others > own) | ((others == own) & (deps >= readers) & tickets[own])
    if (i := _first(later)) is not None:
        cycle = _cycle(tables, int(readers[i]), int(deps[i]))
        if cycle:
            _fail(f"tasks wait for each other: {' → '.join(map(str, cycle))}")
        _fail(f"task {readers[i]} waits for task {deps[i]}, which runs after it")
    if (i := _first((others == own) & ~tickets[own])) is not None:
        _fail(f"task {readers[i]} waits for task {deps[i]} in launch {own[i]}, which runs its tasks in any order")
    if (i := _first((others < own) & tickets[own] & ~tickets[others])) is not None:
        _fail(
            f"task {readers[i]} waits for task {deps[i]}, of which launch {others[i]} does not say when it is complete"
        )


def _cycle(tables: Tables, reader: int, dep: int) -> list[int]:
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


def _walk(
    tables: Tables, launch_of: np.ndarray, kernels: Sequence[Signature]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Task, place and kernel of every step, found as the device does: record after record."""
    records, none = tables.records, np.zeros(0, np.int64)
    operands = np.array([k.operands for k in kernels], np.int64)
    ranks = np.array([k.out.rank for k in kernels], np.int64)
    starts = np.array([launch.kernels.start for launch in tables.launches], np.int64)
    stops = np.array([launch.kernels.stop for launch in tables.launches], np.int64)
    tasks, at, end = np.arange(len(tables)), tables.task_at[:-1].astype(np.int64), tables.task_at[1:].astype(np.int64)
    found = [(none, none, none)]
    while True:
        left = np.flatnonzero(at < end)
        if len(left) < len(at):
            tasks, at, end = tasks[left], at[left], end[left]
        if not len(at):
            break
        if (i := _first(at + HEAD_WORDS > end)) is not None:
            _fail(f"task {tasks[i]}: its records end within a step")
        number, counts, launch = records[at], records[at + 1], launch_of[tasks]
        if (i := _first((number < 0) | (number >= stops[launch] - starts[launch]))) is not None:
            _fail(f"task {tasks[i]}: there is no kernel {number[i]}")
        kernel = starts[launch] + number
        if (i := _first((counts & _LOW != operands[kernel]) | (counts >> 32 != ranks[kernel]))) is not None:
            name = kernels[kernel[i]].name
            _fail(f"task {tasks[i]}: {counts[i] & _LOW} operands, {counts[i] >> 32} dimensions are not those of {name}")
        after = at + HEAD_WORDS + operands[kernel] + ranks[kernel]
        if (i := _first(after > end)) is not None:
            _fail(f"task {tasks[i]}: its records end within a step")
        found.append((tasks, at, kernel))
        at = after
    return tuple(np.concatenate(column) for column in zip(*found, strict=True))  # type: ignore[return-value]


def _check_steps(
    records: np.ndarray, tasks: np.ndarray, places: np.ndarray, kernels: Sequence[Signature], base_bytes: np.ndarray
) -> None:
    """Operands and boxes of all steps that are of one of these kernels."""
    words = records[places[:, None] + HEAD_WORDS + np.arange(kernels[0].operands + kernels[0].out.rank)]
    operands, box = words[:, : kernels[0].operands], words[:, kernels[0].operands :]
    bases = (operands.view(np.uint64) >> np.uint64(BASE_SHIFT)).astype(np.int64)
    beyond = np.asarray((bases >= len(base_bytes)).any(axis=1))
    if (i := _first(beyond)) is not None:
        _fail(f"task {tasks[i]}: kernel {kernels[0].name} has an operand at base {bases[i].max()} of {len(base_bytes)}")
    lo, hi = (box << 32) >> 32, box >> 32
    origin = (operands[:, 0] << 64 - BASE_SHIFT) >> 64 - BASE_SHIFT
    room = base_bytes[bases[:, 0]]
    wrong = np.ones(len(tasks), bool)
    for kernel in kernels:
        outside = np.asarray(((lo < 0) | (hi < lo) | (hi > np.asarray(kernel.out.shape))).any(axis=1))
        first, last = _written(kernel.out, origin, lo, hi)
        wrong &= outside | (((first < 0) | (last > room)) & (hi > lo).all(axis=1))
    if (i := _first(wrong)) is None:
        return
    if outside[i]:
        ends = ", ".join(f"{a}:{b}" for a, b in zip(lo[i], hi[i]))
        _fail(f"task {tasks[i]}: kernel {kernel.name} writes box [{ends}] of {list(kernel.out.shape)}")
    where = f"bytes {first[i]}:{last[i]} of base {bases[i, 0]}, which has {room[i]}"
    _fail(f"task {tasks[i]}: kernel {kernel.name} writes {where}")


def _written(out: Operand, origin: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First byte of each box in its base, and the one after the last."""
    size = out.dtype.itemsize
    strides = np.asarray(out.strides, np.int64) * size
    return origin + lo @ strides, origin + (hi - 1) @ strides + size
