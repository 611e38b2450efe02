"""Starts the launches of a run as others end: the host looks at events, and fills streams from a ready queue."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain

from brickrt.runtime.cuda.driver.protocol import Driver, Event, Stream
from brickrt.runtime.cuda.schedule.ready_queue import DEPTH, ReadyQueue

LOOKS = 64  # at events in vain, each of about a microsecond per stream, before the host sleeps between them
NAP = 50e-6  # seconds, about as many as the host needs to fall asleep and wake up


class Dispatcher:
    """Puts launches on `streams` streams, in an order that it finds out run by run; `after` as of `ReadyQueue`."""

    def __init__(self, driver: Driver, after: Sequence[Sequence[int]], streams: int) -> None:
        self._queue = ReadyQueue(after, streams)
        self._free = [deque(driver.event() for _ in range(DEPTH)) for _ in range(streams)]  # in turns
        self._marks: list[deque[Event]] = [deque() for _ in range(streams)]  # behind launches that have not ended

    def run(self, put: Callable[[int, int], None], streams: Sequence[Stream], stopped: Callable[[], bool]) -> bool:
        """Returns when all launches are on the streams, or False when `stopped` says that no more shall be; the first
        stream then waits for what is on the others. `put` puts a launch on the stream of a number.

        If it raises, or the host is interrupted, what has started has ended when the error leaves this.
        """
        self._queue.begin()
        try:
            while self._queue.left and not stopped():
                self._fill(put, streams)
                if self._queue.left:
                    self._wait()
        except BaseException:
            try:
                for mark in chain(*self._marks):
                    mark.synchronize()
            finally:
                self._forget()
            raise
        for marks in self._marks[1:]:
            if marks:
                streams[0].wait(marks[-1])
        self._forget()
        return not self._queue.left

    def _forget(self) -> None:
        for marks in self._marks:
            marks.clear()

    def _fill(self, put: Callable[[int, int], None], streams: Sequence[Stream]) -> None:
        """Starts what may start."""
        while taken := self._queue.take():
            launch, stream = taken
            put(launch, stream)
            mark = self._free[stream][0]
            mark.record(streams[stream])
            self._free[stream].rotate()
            self._marks[stream].append(mark)

    def _wait(self) -> None:
        """Returns when a launch has ended. With one stream at work the device tells; else the host asks each again and
        again, since any may be the first."""
        busy = [s for s, marks in enumerate(self._marks) if marks]
        if len(busy) == 1:
            self._marks[busy[0]][0].synchronize()
        looks = 0
        while not sum([self._ended(s) for s in busy]):
            looks += 1
            if looks > LOOKS:
                time.sleep(NAP)

    def _ended(self, stream: int) -> int:
        """How many launches of a stream are seen to have ended."""
        marks, count = self._marks[stream], 0
        while marks and marks[0].query():
            marks.popleft()
            self._queue.complete(stream)
            count += 1
        return count
