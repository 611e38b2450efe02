"""What blocks noted of their tasks, as the rows of `runtime/events.py`, in the host's time."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from brickrt.runtime.cuda.context import EVENT_WORDS
from brickrt.runtime.cuda.driver import Driver, Function, Stream
from brickrt.runtime.cuda.sources import Source

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

    def fill(self, rows: Sequence[np.ndarray], order: np.ndarray, since: int, stream: Stream) -> None:
        """Writes the workers' rows; block b is worker b modulo their number, tasks go by `order`, their numbers in the
        graph. What no launch has to run ends with the last task that has one."""
        noted = np.zeros((self._tasks, EVENT_WORDS), np.int64)
        self._driver.download(noted, self.address, stream)
        stream.synchronize()
        noted[:, 1:3] += since
        idle = np.setdiff1d(np.arange(len(rows[0])), order)
        rest = np.zeros((len(idle), EVENT_WORDS), np.int64)
        rest[:, 1:3] = noted[:, 2].max(initial=since)
        worker = np.concatenate([noted[:, 0] % len(rows), rest[:, 0]])
        noted = np.concatenate([noted, rest])
        noted[:, 0] = np.concatenate([order, idle])
        by_time = np.argsort(noted[:, 1], kind="stable")
        for k, own in enumerate(rows):
            mine = by_time[worker[by_time] == k]
            own[: len(mine)] = noted[mine]
