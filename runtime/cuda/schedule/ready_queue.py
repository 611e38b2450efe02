"""Which launch starts next, on which stream, when the host decides that while a run goes on.

A launch is ready when all that it comes after is complete. Of several the earliest in the order of launches goes first:
that order is depth first, so what was just computed is read soon. Streams that are idle come first, one after the
other, so that no more are in use than can be.

A stream may hold a second launch, which starts when the first ends without the host: a ready one, or one that comes
only after launches which are complete or on the same stream. What comes after launches on two streams waits until all
but those of one stream are complete.

                           stream 0    a ── b      b comes after a: it may follow at once
    a → b → d, c → d       stream 1    c           d waits for the host to see that a and b, or that c is complete
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

DEPTH = 2  # launches that a stream holds: one that runs, one to follow


class ReadyQueue:
    """The launches of one run after the other; `after` names what each comes after, all of it earlier ones.

    It knows nothing of a device: who starts launches says which have ended.
    """

    def __init__(self, after: Sequence[Sequence[int]], streams: int) -> None:
        direct = _direct(after)
        self._needs = [len(needs) for needs in direct]
        self._followers: list[list[int]] = [[] for _ in after]
        for k, needs in enumerate(direct):
            for other in needs:
                self._followers[other].append(k)
        self._streams = range(streams)
        self.begin()

    def begin(self) -> None:
        """A new run: nothing has started."""
        self._missing = list(self._needs)  # of what a launch comes after, how many are not complete
        self._near = [[0 for _ in self._streams] for _ in self._needs]  # and of these, how many each stream holds
        self.left = none = len(self._needs)  # launches that have not started; their number, in a heap, is no launch
        self._started = [False for _ in range(none + 1)]
        self._ready = [*(k for k, needs in enumerate(self._needs) if not needs), none]  # a heap
        self._behind = [[none] for _ in self._streams]  # heaps of what may start on one stream before it is ready
        self._held: list[deque[int]] = [deque() for _ in self._streams]

    def take(self) -> tuple[int, int] | None:
        """A launch to start now, and its stream; None where something must end first, or nothing is left."""
        for load in range(DEPTH):
            found = [(self._first(s), *held, s) for s, held in enumerate(self._held) if len(held) == load]
            k, *_, stream = min(found, default=(len(self._needs), 0))  # of streams alike the one whose own is earliest
            if k < len(self._needs):
                self._start(k, stream)
                return k, stream
        return None

    def complete(self, stream: int) -> None:
        """The first of the launches that a stream holds has ended."""
        for k in self._followers[self._held[stream].popleft()]:
            self._missing[k] -= 1
            self._near[k][stream] -= 1
            if not self._missing[k]:
                heappush(self._ready, k)
            else:
                self._note(k)

    def _first(self, stream: int) -> int:
        """The earliest launch that may start on a stream; the number of all launches where none may."""
        ready, behind = self._ready, self._behind[stream]
        for heap in (ready, behind):
            while self._started[heap[0]]:
                heappop(heap)
        return min(ready[0], behind[0])

    def _start(self, k: int, stream: int) -> None:
        self._started[k] = True
        self.left -= 1
        self._held[stream].append(k)
        for follower in self._followers[k]:
            self._near[follower][stream] += 1
            self._note(follower)

    def _note(self, k: int) -> None:
        """Notes a launch that is not ready where one stream holds all that it waits for."""
        for stream, near in enumerate(self._near[k]):
            if near == self._missing[k] and not self._started[k]:
                heappush(self._behind[stream], k)


def _direct(after: Sequence[Sequence[int]]) -> list[list[int]]:
    """What each launch comes after, without what others of these come after themselves: tensors that share memory leave
    many such, and each costs time in every run."""
    before: list[int] = []  # all that a launch comes after, one way or another, a bit each
    found = []
    for needs in after:
        mine, kept = 0, []
        for other in sorted(needs, reverse=True):
            if not mine >> other & 1:
                kept.append(other)
                mine |= before[other] | 1 << other
        before.append(mine)
        found.append(kept)
    return found
