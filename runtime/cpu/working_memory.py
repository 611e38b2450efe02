"""Arena and scratch, which programs use in turn: what they hold means nothing between runs, and pages that one program
has written to are not new to the next. New pages cost a first run more than all that is computed in it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from threading import Lock

import numpy as np

from brickrt.runtime.after_fork import tell_children
from brickrt.runtime.cpu.memory import GrowingMemory

SCRATCH, ARENA = 0, 1  # their places in the workers' tables of bases
KEPT_FOR, LAST_KERNEL = range(2)  # words in front of a worker's scratch: see `workers/worker_loop.py`
SCRATCH_HEAD = 64  # bytes of these words: a cache line


@dataclass(frozen=True)
class Need:
    """Bytes of the arena, and of the scratch of each of `threads` workers."""

    arena: int
    scratch: int
    threads: int

    def within(self, other: Need) -> bool:
        """Whether memory that is enough for the other is enough for this."""
        return self.arena <= other.arena and self.scratch <= other.scratch and self.threads <= other.threads

    def joined(self, other: Need) -> Need:
        """What is enough for both."""
        return Need(max(self.arena, other.arena), max(self.scratch, other.scratch), max(self.threads, other.threads))

    def more_scratch(self, nbytes: int) -> Need:
        """With so many bytes more for each worker."""
        return replace(self, scratch=self.scratch + nbytes)

    @property
    def nbytes(self) -> int:
        """Arena and all scratch together."""
        return self.arena + self.scratch * self.threads


@dataclass(eq=False)
class Buffers:
    """Memory of one run at a time, uint8. No two have one `number`, which is not 0, and another one when they move."""

    need: Need = Need(0, 0, 0)
    arena: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint8))
    scratch: list[np.ndarray] = field(default_factory=list)
    number: int = 0

    def __post_init__(self) -> None:
        self._arena, self._scratch = GrowingMemory(), list[GrowingMemory]()

    def grow(self, need: Need) -> None:
        """Makes them large enough; only what is new of them is made."""
        need = need.joined(self.need)
        while len(self._scratch) < need.threads:
            self._scratch.append(GrowingMemory())
        self.arena, self.scratch = np.empty(0, np.uint8), []  # views, which would keep old pages
        self.arena = self._arena.grown(need.arena, len(self._scratch))
        self.scratch = [each.grown(SCRATCH_HEAD + need.scratch) for each in self._scratch]
        self.need, self.number = need, next(_NUMBERS)


_NUMBERS = itertools.count(1)


class WorkingMemory:
    """Lends buffers to runs: one set is enough where runs follow each other, and runs at the same time have one each.
    Any thread may ask."""

    def __init__(self) -> None:
        self._lock, self._free, self._lent = Lock(), list[Buffers](), 0
        tell_children(self)

    def after_fork(self) -> None:
        """See `Forked`: what other threads had borrowed does not come back."""
        self._lock, self._lent = Lock(), 0

    def reserve(self, need: Need) -> None:
        """Makes room for a program that will run; where others run just now, what they use may be enough for it too."""
        if self._free or not self._lent:
            self.take_back(self.lend(need))

    def lend(self, need: Need) -> Buffers:
        """Buffers that are large enough, until `take_back`. Those that are not grow."""
        with self._lock:
            free = self._free.pop() if self._free else None
            self._lent += 1
        found = Buffers() if free is None else free
        if not need.within(found.need):
            try:
                found.grow(need)
            except BaseException:
                with self._lock:
                    self._lent -= 1
                raise
        return found

    def take_back(self, lent: Buffers) -> None:
        """Ends a loan."""
        with self._lock:
            self._free.append(lent)
            self._lent -= 1

    @property
    def free(self) -> list[Buffers]:
        """What no run has just now."""
        return self._free
