"""What blocks noted of their tasks, as the rows of `runtime/events.py`, in the host's time."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from brickrt.runtime.cuda.context import EVENT_WORDS
from brickrt.runtime.cuda.driver import Driver, Function, Stream
from brickrt.runtime.cuda.sources import Source
from brickrt.runtime.task_graph import TaskGraph

LOOKS = 5  # at the device's clock, of which the quickest counts
CLOCK = Source(
    "brickrt_clock",
    '#include "portable.cuh"\n'
    "BRICK_KERNEL(brickrt_clock, long long, 32, 1) {\n"
    "    if (brick::thread() == 0) *const_cast<long long*>(c) = brick::globaltimer();\n"
    "}\n",
    32,
    0,
)


class Watch:
    """Memory for one run's rows, and the device's clock."""

    def __init__(self, driver: Driver, tasks: int) -> None:
        self._driver, self._tasks = driver, tasks
        self._memory = driver.allocate(8 * max(EVENT_WORDS * tasks, 1))
        self._clock: Function | None = None

    @property
    def address(self) -> int:
        return self._memory.address

    def since(self, stream: Stream) -> int:
        """Nanoseconds to add to the device's clock for the host's monotonic one. Waits for the stream."""
        if self._clock is None:
            self._clock = self._driver.functions([CLOCK], None)[0]
        stream.synchronize()
        looks = [self._look(self._clock, stream) for _ in range(LOOKS)]
        return min(looks)[1]

    def _look(self, clock: Function, stream: Stream) -> tuple[int, int]:
        """How long a look took, and the difference of the clocks at its middle."""
        there, before = np.zeros(1, np.int64), time.monotonic_ns()
        clock.launch(1, (self.address, 0, 0, 0, 0), stream, False)
        self._driver.download(there, self.address, stream)
        stream.synchronize()
        after = time.monotonic_ns()
        return after - before, (before + after) // 2 - int(there[0])

    def fill(self, rows: Sequence[np.ndarray], tasks: TaskGraph, order: np.ndarray, since: int, stream: Stream) -> None:
        """Writes the workers' rows: block b is worker b modulo their number. Tasks go by `order`, their numbers in the
        graph; one that no launch has is complete with the last that it waits for."""
        noted = np.zeros((self._tasks, EVENT_WORDS), np.int64)
        if self._tasks:
            self._driver.download(noted, self.address, stream)
            stream.synchronize()
        found = np.zeros((len(tasks), EVENT_WORDS), np.int64)
        found[order] = noted
        found[order, 1:3] += since
        for t in np.setdiff1d(np.arange(len(tasks)), order).tolist():
            deps = tasks.deps[tasks.dep_offsets[t] : tasks.dep_offsets[t + 1]]
            found[t, 1:3] = found[deps, 2].max(initial=since)
        worker = found[:, 0] % len(rows)
        found[:, 0] = np.arange(len(tasks))
        by_time = np.argsort(found[:, 1], kind="stable")
        for k, own in enumerate(rows):
            mine = by_time[worker[by_time] == k]
            own[: len(mine)] = found[mine]
