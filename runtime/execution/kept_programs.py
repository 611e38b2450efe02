"""How much memory the programs of one runtime may hold between calls: the least recently used go first."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping
from weakref import finalize

from brickrt.graph.errors import BrickError
from brickrt.runtime.after_fork import tell_children

KEPT_BYTES = 2 << 30
"""What programs may hold by default."""
LEAST_PROGRAM_BYTES = 1 << 20  # that each counts for: task graphs and tables in Python are in no other figure


def kept_bytes(asked: int | None) -> int:
    """The bound that was asked for, or the default. Raises BrickError for what is no number of bytes."""
    if asked is None:
        return KEPT_BYTES
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 0:
        raise BrickError(f"keep_bytes {asked!r} is impossible: give a number of bytes, 0 to keep only the last program")
    return asked


def programs_kept_for(owner: object, asked: int | None) -> KeptPrograms:
    """The programs of a runtime, which go with it at once: they are kept by caches that refer to each other, and would
    wait for the collection of garbage. Raises BrickError as `kept_bytes` does."""
    found = KeptPrograms(kept_bytes(asked))
    finalize(owner, found.clear)
    return found


class KeptPrograms:
    """Counts the bytes of all programs of a runtime, and drops the least recently used where they are too many. The
    newest stays, however large it is."""

    def __init__(self, bound: int) -> None:
        self._bound, self._total = bound, 0
        self._lock = threading.Lock()
        self._drops: OrderedDict[Hashable, tuple[Mapping[int, int], Callable[[], object]]] = OrderedDict()
        self._holders: Counter[int] = Counter()
        tell_children(self)

    def after_fork(self) -> None:
        """See `Forked`."""
        self._lock = threading.Lock()

    def add(self, key: Hashable, held: Mapping[int, int], drop: Callable[[], object]) -> None:
        """Counts a program, in place of that of the same key, and what it holds, each thing once of all programs;
        `drop` is what gives it up later."""
        gone = []
        with self._lock:
            self._forget(key)
            self._drops[key] = held, drop
            self._total += _missing(held)
            for thing, nbytes in held.items():
                self._total += 0 if self._holders[thing] else nbytes
                self._holders[thing] += 1
            while self._total > self._bound and len(self._drops) > 1:
                oldest = next(iter(self._drops))
                gone.append(self._forget(oldest))
        for each in gone:
            if each:
                each()

    def used(self, key: Hashable) -> None:
        """Notes that a program was used just now."""
        with self._lock:
            if key in self._drops:
                self._drops.move_to_end(key)

    def remove(self, key: Hashable) -> None:
        """Counts a program no more that its holder gives up."""
        with self._lock:
            self._forget(key)

    def clear(self) -> None:
        """Counts nothing any more, and holds nothing."""
        with self._lock:
            self._drops.clear()
            self._holders.clear()
            self._total = 0

    def _forget(self, key: Hashable) -> Callable[[], object] | None:
        if key not in self._drops:
            return None
        held, drop = self._drops.pop(key)
        self._total -= _missing(held)
        for thing, nbytes in held.items():
            self._holders[thing] -= 1
            if not self._holders[thing]:
                del self._holders[thing]
                self._total -= nbytes
        return drop


def _missing(held: Mapping[int, int]) -> int:
    """Bytes up to the least that a program counts for."""
    return max(0, LEAST_PROGRAM_BYTES - sum(held.values()))
