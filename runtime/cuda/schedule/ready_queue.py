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
        self._needs = [len(needs) for needs in after]
        self._followers: list[list[int]] = [[] for _ in after]
        for k, needs in enumerate(after):
            for other in needs:
                self._followers[other].append(k)
        self._streams = range(streams)
        self.begin()

    def begin(self) -> None:
        """A new run: nothing has started."""
        self._missing = list(self._needs)  # of what a launch comes after, how many are not complete
        self._near = [[0 for _ in self._streams] for _ in self._needs]  # and of these, how many each stream holds
        self._ready = [k for k, needs in enumerate(self._needs) if not needs]  # a heap, as those below are
        self._behind: list[list[int]] = [[] for _ in self._streams]  # what may start on one stream before it is ready
        self._started = [False for _ in self._needs]
        self._held: list[deque[int]] = [deque() for _ in self._streams]
        self.left = len(self._needs)  # launches that have not started

    def take(self) -> tuple[int, int] | None:
        """A launch to start now, and its stream; None where something must end first, or nothing is left."""
        for load in range(DEPTH):
            able = [s for s in self._streams if len(self._held[s]) == load]
            found = [(k, *self._held[s], s) for s in able if (k := self._first(s)) is not None]
            if found:
                k, *_, stream = min(found)  # of streams with as many launches the one whose own is earliest
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

    def _first(self, stream: int) -> int | None:
        """The earliest launch that may start on a stream."""
        heaps = self._ready, self._behind[stream]
        for heap in heaps:
            while heap and self._started[heap[0]]:
                heappop(heap)
        return min((heap[0] for heap in heaps if heap), default=None)

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
