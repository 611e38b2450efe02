"""Which launches were running when the device took a fault, by what their first blocks told the host.

    begun     yes   yes   no           a ended, since b comes after it and had begun; b was running; c had not begun
    launches   a ──► b ──► c

A call of a library tells nothing: it may have been running where those before it had begun and none after it had.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

import numpy as np

from brickrt.runtime.cuda.schedule.stream_schedule import Schedule

UNKNOWN = 1 << 62  # runs that were put: more than there are


class LaunchMarks:
    """`begun` are the words that tell how often each launch has begun, which the device changes; of launches that are
    not `marked` they stay 0. Runs of all launches follow one another, in the order of streams."""

    def __init__(self, begun: np.ndarray, marked: Sequence[bool], before: Mapping[int, Sequence[int]]) -> None:
        """`before` are those that have ended when a launch begins; what comes before these may be left out."""
        self._begun, self._marked, self._whole = begun, marked, before
        self.restart()

    def restart(self) -> None:
        """Forgets what was so far. Nothing may be under way."""
        self._before: Mapping[int, Sequence[int]] = self._whole
        self._only: Sequence[int] = range(len(self._marked))
        self._base, self._spoilt, self._runs, self._ended = self._begun.copy(), False, 0, 0

    def put(self) -> None:
        """A run of all launches is put on streams."""
        self._runs += 1

    def end(self) -> None:
        """All runs so far have ended."""
        if self._spoilt:
            self.restart()
        self._ended = self._runs

    def spoil(self) -> None:
        """A run was not put as a whole: when it has ended, begin anew."""
        self._spoilt = True

    @property
    def under_way(self) -> bool:
        """Whether a run may not have ended."""
        return self._runs > self._ended

    @contextmanager
    def alone(self, which: Sequence[int]) -> Iterator[None]:
        """Inside of it only these launches run, one after the other and again and again."""
        self.restart()
        self._before, self._only = {k: [before] for before, k in pairwise(which)}, which
        self._runs = UNKNOWN
        try:
            yield
        except BaseException:
            self.spoil()
            raise
        self.restart()

    def running(self) -> list[int]:
        """Launches that may have been running; those that told of themselves first."""
        times = {k: int(self._begun[k] - self._base[k]) for k in self._only if self._marked[k]}
        latest = max(times.values(), default=0)
        if latest <= self._ended:
            return self._among(set())
        begun = {k for k, count in times.items() if count == latest}
        found = self._among(begun)
        if len(begun) == len(times) and latest < self._runs:
            found += [k for k in self._among(set()) if k not in found]  # or the next run's first ones
        return found

    def _among(self, begun: Collection[int]) -> list[int]:
        """Those that were running when exactly these, of the marked ones, had begun."""
        passed: set[int] = set()  # what comes after them had begun
        for k in reversed(self._only):
            if k in begun or k in passed:
                passed |= set(self._before.get(k, ()))
        found: set[int] = set()
        for k in self._only:
            ready = k in begun if self._marked[k] else passed.union(found).issuperset(self._before.get(k, ()))
            if ready and k not in passed:
                found.add(k)
        return sorted(found, key=lambda k: (not self._marked[k], k))


def by_schedule(schedule: Schedule) -> dict[int, list[int]]:
    """What each launch comes after directly: the last one on its stream, and those that it waits for."""
    tails: dict[int, int] = {}
    found = {}
    for k, turn in enumerate(schedule.turns):
        found[k] = [*turn.waits, *([tails[turn.stream]] if turn.stream in tails else [])]
        tails[turn.stream] = k
    return found
