"""Chooses which tensors are spilled: the least modelled time of all passes.

For each pass there are two sets of tensors of which all later ones can be computed: those that later passes read
themselves, and the fewest bytes. Going through the passes, the best sequence of such sets is found, as if each pass
went on from the last set before it. Of their union, tensors are then left out, and others added, one by one, while that
saves time; in small networks this begins with none and with all as well, and where tensors are few, two are
left out or added at once, or one in place of another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from brickrt.plan.stream.spill_costs import SpillCosts

GAIN = 0.9  # of the time without spills: spilling must take less, as times are only modelled
SMALL_NETWORK = 5000  # passes times units; in smaller ones tensors are also added to none, and left out of all
FEW_TENSORS = 12  # of which two are changed at once
READS = 2  # passes that read a tensor, about, where sets are compared
_SOURCE, _SINK = -1, -2


@dataclass(frozen=True)
class Boundary:
    """Before pass `number`, `tensors` are known from files, and of the units of earlier passes no more than `again` are
    computed again; both are numbers of units."""

    number: int
    tensors: frozenset[int]
    again: frozenset[int]


def choose_spills(costs: SpillCosts) -> tuple[str, ...]:
    """The names of the tensors to spill; none where that saves too little."""
    if len(costs.targets) < 2:
        return ()
    starts = [_sequence(costs, _boundaries(costs))]
    if len(costs.targets) * len(costs.units) < SMALL_NETWORK:
        starts += [frozenset(), frozenset(unit for unit, one in enumerate(costs.units) if one.name)]
    found = [_Search(costs, start).run() for start in starts]
    spilled, seconds = min(found, key=lambda one: one[1])
    if seconds > GAIN * sum(one.seconds for one in costs.passes(())):
        return ()
    return tuple(costs.units[unit].name for unit in sorted(spilled))


def _boundaries(costs: SpillCosts) -> list[Boundary]:
    """The sets before each pass, by pass."""
    consumers: list[list[int]] = [[] for _ in costs.units]
    for number, unit in enumerate(costs.units):
        for read in unit.reads:
            consumers[read].append(number)
    found, before = [], frozenset[int]()
    for number in range(1, len(costs.targets)):
        ends = [
            k
            for k, unit in enumerate(costs.units)
            if unit.level < number and any(costs.units[c].level >= number for c in consumers[k])
        ]
        wide = _reached(costs, ends, frozenset(k for k in ends if costs.units[k].name) | before, number)
        few = _fewest(costs, ends, before, number)
        before = few.tensors
        found += [wide, few] if wide != few else [few]
    return found


def _reached(costs: SpillCosts, ends: Iterable[int], known: frozenset[int], number: int) -> Boundary:
    """What is read of known tensors, and computed again, for those that later passes read."""
    again, tensors, left = set[int](), set[int](), list(ends)
    while left:
        unit = left.pop()
        if unit in known:
            tensors.add(unit)
        elif unit not in again:
            again.add(unit)
            left += costs.units[unit].reads
    return Boundary(number, frozenset(tensors), frozenset(again))


def _fewest(costs: SpillCosts, ends: list[int], before: frozenset[int], number: int) -> Boundary:
    """The tensors of fewest bytes between those that are known before and those that later passes read: a minimum cut,
    the last one where several are as small."""
    flow = _Flow()
    units, seen, left = costs.units, set[int](), list(ends)
    while left:
        unit = left.pop()
        if unit in seen:
            continue
        seen.add(unit)
        one, reading = units[unit], READS * costs.read_s(unit)
        if one.is_input or unit in before:
            flow.join(_SOURCE, 2 * unit + 1, reading)
            continue
        flow.join(2 * unit, 2 * unit + 1, costs.write_s(unit) + reading if one.name else np.inf)
        for read in one.reads:
            flow.join(2 * read + 1, 2 * unit, np.inf)
        left += one.reads
        if not one.reads:  # what is resident is spread: to compute it again takes little
            flow.join(_SOURCE, 2 * unit, READS * one.seconds)
    for unit in ends:
        flow.join(2 * unit + 1, _SINK, np.inf)
    behind = flow.cut()
    cut = {u for u in seen if 2 * u + 1 not in behind and (units[u].is_input or u in before or 2 * u in behind)}
    return _reached(costs, ends, frozenset(u for u in cut if units[u].name), number)


@dataclass
class _Flow:
    """A flow from the source to the sink, found path by path."""

    left: dict[int, dict[int, float]] = field(default_factory=dict)  # capacity from node to node

    def join(self, a: int, b: int, capacity: float) -> None:
        self.left.setdefault(a, {})[b] = capacity
        self.left.setdefault(b, {}).setdefault(a, 0.0)

    def cut(self) -> set[int]:
        """The nodes that do not reach the sink any more once the flow is the greatest."""
        while (path := self._path()) is not None:
            most = min(self.left[a][b] for a, b in path)
            for a, b in path:
                self.left[a][b] -= most
                self.left[b][a] += most
        back = {_SINK}
        queue = deque(back)
        while queue:
            b = queue.popleft()
            for a in self.left.get(b, ()):
                if a not in back and self.left[a][b] > 0:
                    back.add(a)
                    queue.append(a)
        return self.left.keys() - back

    def _path(self) -> list[tuple[int, int]] | None:
        """The shortest path with capacity left."""
        before, queue = {_SOURCE: _SOURCE}, deque([_SOURCE])
        while queue:
            a = queue.popleft()
            for b, capacity in self.left.get(a, {}).items():
                if capacity > 0 and b not in before:
                    before[b] = a
                    if b == _SINK:
                        return _steps(before)
                    queue.append(b)
        return None


def _steps(before: dict[int, int]) -> list[tuple[int, int]]:
    at, steps = _SINK, []
    while at != _SOURCE:
        steps.append((before[at], at))
        at = before[at]
    return steps


def _sequence(costs: SpillCosts, boundaries: list[Boundary]) -> frozenset[int]:
    """The tensors of the sequence of boundaries whose passes take least; each pass goes on from the last one."""
    states = [Boundary(0, frozenset(), frozenset(range(len(costs.units)))), *boundaries]
    spent = [_spent(costs, needed, one) for needed in [_needed(costs)] for one in states]
    names = sorted(set().union(*(one.tensors for one in states)))
    held = np.array([[unit in one.tensors for unit in names] for one in states], float).reshape(len(states), -1)
    writing = np.array([costs.write_s(unit) for unit in names])
    again = held @ (held * writing).T  # seconds to write what two sets share
    best, came = np.zeros(len(states)), np.zeros(len(states), int)
    for k, one in enumerate(states[1:], 1):
        earlier = [j for j, other in enumerate(states) if other.number < one.number]
        times = [best[j] + spent[j][states[j].number : one.number].sum() - again[j, k] for j in earlier]
        at = int(np.argmin(times))
        best[k], came[k] = times[at] + again[k, k], earlier[at]
    k = int(np.argmin([best[k] + spent[k][one.number :].sum() for k, one in enumerate(states)]))
    found = set[int]()
    while k:
        found |= states[k].tensors
        k = came[k]
    return frozenset(found)


def _needed(costs: SpillCosts) -> np.ndarray:
    """Which units each pass needs where nothing is spilled, [passes, units]."""
    found = np.zeros((len(costs.targets), len(costs.units)), bool)
    for row, targets in zip(found, costs.targets, strict=True):
        row[list(targets)] = True
    for unit in reversed(range(len(costs.units))):
        found[:, list(costs.units[unit].reads)] |= found[:, unit, None]
    return found


def _spent(costs: SpillCosts, needed: np.ndarray, at: Boundary) -> np.ndarray:
    """Seconds that each pass takes that goes on from a boundary, [passes]; too many for earlier passes."""
    units = costs.units
    runs = np.array([unit.level >= at.number or k in at.again for k, unit in enumerate(units)])
    mine = needed & runs
    seconds = mine @ np.array([unit.seconds for unit in units])
    sources = at.tensors | {k for k, unit in enumerate(units) if unit.is_input and k in at.again}
    for unit in sources:
        users = [k for k in np.flatnonzero(runs) if unit in units[k].reads]
        seconds += mine[:, users].any(axis=1) * costs.read_s(unit)
    return seconds


class _Search:
    """Leaves tensors out, or adds some, while that saves time."""

    def __init__(self, costs: SpillCosts, spilled: Iterable[int]) -> None:
        self.costs, self.spilled = costs, frozenset(spilled)
        self.passes = [costs.one_pass(number, self.spilled) for number in range(len(costs.targets))]

    def run(self) -> tuple[frozenset[int], float]:
        """The tensors that are spilled in the end, and the seconds of all passes."""
        tried = [unit for unit, one in enumerate(self.costs.units) if one.name]
        pairs = combinations(tried, 2) if len(tried) <= FEW_TENSORS else ()
        changes = [*((unit,) for unit in tried), *pairs]
        while sum(self.change(*units) for units in changes):
            pass
        return self.spilled, sum(one.seconds for one in self.passes)

    def change(self, *changed: int) -> bool:
        """Spills some tensors, or does not any more; whether that saves time."""
        levels, other = {self.costs.units[unit].level for unit in changed}, self.spilled ^ {*changed}
        after = {
            number: self.costs.one_pass(number, other)
            for number, one in enumerate(self.passes)
            if number in levels or any(unit in one.computed or unit in one.read for unit in changed)
        }
        saved = sum(self.passes[number].seconds - one.seconds for number, one in after.items())
        if saved <= 1e-9:
            return False
        self.spilled = other
        for number, one in after.items():
            self.passes[number] = one
        return True
