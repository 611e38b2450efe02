"""What is complete before what: launches by what they come after, tasks of one launch by what they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brickrt.plan.geometry.bricks import ramps, row_offsets
from tests.support.task_checks import ancestors
from tests.support.verify.types import CheckedLaunch, CheckedTables, Expected, distinct, fail, first


def expand(offsets: np.ndarray, values: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Some rows of a CSR list: which of `rows` each value is of, and the values."""
    counts = offsets[rows + 1] - offsets[rows]
    of = np.repeat(np.arange(len(rows)), counts)
    return of, values[offsets[rows][of] + ramps(counts)]


def contains(keys: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Which of `expected` are among sorted keys."""
    if not len(keys):
        return np.zeros(len(expected), bool)
    return np.asarray(keys[np.minimum(np.searchsorted(keys, expected), len(keys) - 1)] == expected)


def check_after(launches: Sequence[CheckedLaunch]) -> None:
    """Launches come after earlier ones."""
    for k, launch in enumerate(launches):
        for other in launch.after:
            if not 0 <= other < k:
                fail(f"launch {k} comes after launch {other}, which is no earlier one")


@dataclass(frozen=True, eq=False)
class Order:
    """The order of the tables' tasks. `launch_of` [tasks]; `stepless` tasks do nothing but wait for others, [tasks]."""

    tables: CheckedTables
    launch_of: np.ndarray
    stepless: np.ndarray

    # ---- launches

    def distinct(self, launches: np.ndarray) -> np.ndarray:
        """Each once, ascending."""
        return np.flatnonzero(np.bincount(launches, minlength=len(self.tables.launches)))

    @cached_property
    def _before(self) -> np.ndarray:
        """Launches that are complete before each, as bits, uint8 [launches, bytes]."""
        launches = self.tables.launches
        found, width = ancestors(launch.after for launch in launches), len(launches) // 8 + 1
        flat = b"".join(one.to_bytes(width, "little") for one in found)
        return np.frombuffer(flat, np.uint8).reshape(len(launches), width)

    def launched(self, first_one: np.ndarray, then: np.ndarray) -> np.ndarray:
        """Whether the first launch is complete before the other begins, pairwise."""
        return np.asarray(self._before[then, first_one >> 3] >> (first_one & 7) & 1 != 0)

    def all_launched(self, before: np.ndarray, after: np.ndarray) -> bool:
        """Whether that holds for all pairs of different launches."""
        a = before[:, None]
        return bool((self.launched(a, after) | (a == after)).all())

    def check_chain(self, which: Sequence[int], why: str) -> None:
        """Launches that must run one by one do."""
        numbers = np.asarray(which, np.int64)
        if (i := first(~self.launched(numbers[:-1], numbers[1:]))) is not None:
            fail(f"launch {which[i + 1]} does not come after launch {which[i]}: {why}")

    # ---- tasks of one launch

    @cached_property
    def _readers(self) -> np.ndarray:
        """The task that waits for each dependency."""
        return np.repeat(np.arange(len(self.tables)), np.diff(self.tables.dep_offsets))

    @cached_property
    def _edges(self) -> np.ndarray:
        """What waits for what as sorted keys."""
        keys = self._readers * len(self.tables) + self.tables.deps
        return keys if (keys[1:] >= keys[:-1]).all() else np.sort(keys)

    @cached_property
    def _joins(self) -> tuple[np.ndarray, np.ndarray]:
        """The stepless tasks that each task waits for, CSR."""
        some = self.stepless[self.tables.deps]
        return row_offsets(np.bincount(self._readers[some], minlength=len(self.tables))), self.tables.deps[some]

    @cached_property
    def _joined(self) -> np.ndarray:
        """What is complete when a stepless task is, itself included, through no others than such: sorted keys."""
        offsets, deps = self.tables.dep_offsets, self.tables.deps
        found: dict[int, np.ndarray] = {}
        for j in np.flatnonzero(self.stepless).tolist():
            mine = deps[offsets[j] : offsets[j + 1]]
            found[j] = distinct(np.concatenate([[j], mine, *(found[d] for d in mine[self.stepless[mine]].tolist())]))
        none = np.zeros(0, np.int64)
        return np.concatenate([none, *(j * len(self.tables) + mine for j, mine in found.items())])

    def waits(self, task: np.ndarray, dep: np.ndarray) -> np.ndarray:
        """Whether the tables list this, pairwise."""
        if len(task) == len(self._readers) and (task == self._readers).all() and (dep == self.tables.deps).all():
            return np.ones(len(task), bool)
        return contains(self._edges, task * np.int64(len(self.tables)) + dep)

    def _through(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Whether tasks are complete before others through stepless ones, pairwise."""
        of, joins = expand(*self._joins, after)
        found = np.zeros(len(after), bool)
        found[of[contains(self._joined, joins * np.int64(len(self.tables)) + before[of])]] = True
        return found

    def _reached(self, before: int, after: int) -> bool:
        """Whether there is any way."""
        offsets, deps = self.tables.dep_offsets, self.tables.deps
        todo, seen = [after], {after}
        while todo:
            task = todo.pop()
            mine = deps[offsets[task] : offsets[task + 1]]
            more = set(mine[mine >= before].tolist()) - seen
            if before in more:
                return True
            seen |= more
            todo += more
        return False

    def first_unordered(self, before: np.ndarray, after: np.ndarray) -> int | None:
        """The first pair of different tasks of which the one is not always complete before the other begins."""
        own, other = self.launch_of[after], self.launch_of[before]
        done = (before == after) | ((own != other) & self.launched(other, own))
        tickets = np.array([launch.tickets for launch in self.tables.launches], bool)
        left = np.flatnonzero(~done & (own == other) & tickets[own])
        for fits in (self.waits, lambda task, dep: self._through(dep, task)):
            some = fits(after[left], before[left])
            done[left[some]] = True
            left = left[~some]
        for i in np.flatnonzero(~done).tolist():
            together = own[i] == other[i] and tickets[own[i]]
            if not (together and self._reached(int(before[i]), int(after[i]))):
                return i
        return None

    def first_of_all(self, before: np.ndarray, after: np.ndarray) -> tuple[int, int] | None:
        """The first such pair among all pairs of tasks `before` and `after`, which are of one launch."""
        offsets, joins = self._joins
        counts = offsets[after + 1] - offsets[after]
        for count in np.unique(counts).tolist():
            mine = after[counts == count]
            rows, which = np.unique(joins[offsets[mine][:, None] + np.arange(count)], axis=0, return_inverse=True)
            for k in range(len(rows)):
                alike = mine[which.reshape(-1) == k]
                left = before[~self._through(before, np.full(len(before), alike[0]))]
                for task in alike.tolist() if len(left) else []:
                    if (i := self.first_unordered(left, np.full(len(left), task))) is not None:
                        return int(left[i]), task
        return None


def check_graph(order: Order, expected: Expected) -> None:
    """Whatever a task of the graph waits for, the tables make it, and all its parts, wait for."""
    count, launch_of = len(expected.dep_offsets) - 1, order.launch_of
    tasks, deps = np.repeat(np.arange(count), np.diff(expected.dep_offsets)), expected.deps
    number = np.full(count, -1, np.int64)
    number[expected.owner] = np.arange(len(expected.owner))
    tickets = np.array([*(launch.tickets for launch in order.tables.launches), False], bool)
    launched = np.where(number >= 0, launch_of[number] if len(launch_of) else -1, -1)
    own, others = launched[tasks], launched[deps]
    inside = (own == others) & tickets[own]
    mine, its = number[tasks[inside]], number[deps[inside]]
    if (i := first(~order.waits(mine, its))) is not None:
        fail(f"task {mine[i]} does not wait for task {its[i]}, whose result it needs")
    across = np.flatnonzero(~inside & (own >= 0))  # what is in no launch, others wait through
    _check_across(order, expected, tasks[across], deps[across])


def _check_across(order: Order, expected: Expected, tasks: np.ndarray, deps: np.ndarray) -> None:
    """The launches of tasks come after all those of what they wait for."""
    offsets, launches = _launches(order, expected)
    kind, example = _alike(offsets, launches, len(order.tables.launches))
    pairs = distinct(kind[tasks] * np.int64(len(example)) + kind[deps])
    tasks, deps = (example[side] for side in np.divmod(pairs, len(example)))
    of, own = expand(offsets, launches, tasks)
    again, others = expand(offsets, launches, deps[of])
    if (i := first(~order.launched(others, own[again]))) is not None:
        k = again[i]
        what = f"task {tasks[of[k]]} of the graph waits for {deps[of[k]]}"
        fail(f"launch {own[k]} does not come after launch {others[i]}: {what}")


def _alike(offsets: np.ndarray, launches: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of tasks such that those of equal number are in the same launches, and one task of each number."""
    counts = np.diff(offsets)
    kind = np.full(len(counts), count, np.int64)
    alone = np.flatnonzero(counts == 1)
    kind[alone] = launches[offsets[alone]]
    several = np.flatnonzero(counts > 1)
    kind[several] = count + 1 + np.arange(len(several))
    example = np.zeros(count + 1 + len(several), np.int64)
    example[kind] = np.arange(len(kind))
    return kind, example


def _launches(order: Order, expected: Expected) -> tuple[np.ndarray, np.ndarray]:
    """The launches of all the graph's tasks, CSR; of those that are in none, those of what they wait for."""
    count, width = len(expected.dep_offsets) - 1, len(order.tables.launches) + 1
    holders, launches = np.divmod(distinct(expected.owner * np.int64(width) + order.launch_of), width)
    offsets = row_offsets(np.bincount(holders, minlength=count))
    joined: dict[int, np.ndarray] = {}
    for g in np.flatnonzero(np.diff(offsets) == 0).tolist():
        deps = expected.deps[expected.dep_offsets[g] : expected.dep_offsets[g + 1]]
        _, direct = expand(offsets, launches, deps)
        joined[g] = order.distinct(np.concatenate([direct, *(joined[d] for d in deps.tolist() if d in joined)]))
    more = [np.full(len(found), g) for g, found in joined.items()]
    holders = np.concatenate([holders, *more])
    by_holder = np.argsort(holders, kind="stable")
    launches = np.concatenate([launches, *joined.values()])[by_holder]
    return row_offsets(np.bincount(holders, minlength=count)), launches
