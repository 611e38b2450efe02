"""What blocks noted of their tasks, as the rows of `runtime/events.py`, in the host's time."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from brickrt.runtime.cuda.driver.protocol import DeviceFunction, Driver, Stream
from brickrt.runtime.cuda.kernels.kernel_context import EVENT_WORDS
from brickrt.runtime.cuda.kernels.kernel_sources import KernelSource
from brickrt.runtime.cuda.schedule.launches import Launch
from brickrt.runtime.lowering.task_graph import TaskGraph

LOOKS = 5  # at the device's clock, of which the quickest counts
CLOCK = KernelSource(
    "brickrt_clock",
    '#include "portable.cuh"\n'
    "struct Clock { long long* at; };\n"
    "BRICK_KERNEL(brickrt_clock, Clock, 32, 1) {\n"
    "    if (brick::thread() == 0) *c->at = brick::globaltimer();\n"
    "}\n",
    32,
    0,
)


class DeviceEvents:
    """Memory for one run's rows, and the device's clock. Where runs are `checked` the rows lie on the host, which can
    read them after a fault too."""

    def __init__(self, driver: Driver, stream: Stream, tasks: int, checked: bool = False) -> None:
        self._driver, self._stream, self._tasks = driver, stream, tasks
        nbytes, purpose = 8 * max(EVENT_WORDS * tasks, 1), "the events of a run"
        self._pinned = driver.pinned(nbytes, purpose) if checked else None
        self._memory = self._pinned or driver.allocate(nbytes, purpose)
        self._time = driver.allocate(8, "the time")
        self._clock: DeviceFunction | None = None

    @property
    def address(self) -> int:
        """Where blocks write their rows."""
        return self._memory.address

    def shift(self) -> int:
        """Nanoseconds to add to the device's clock for the host's monotonic one."""
        if self._clock is None:
            self._clock = self._driver.functions([CLOCK], None)[0]
        self._stream.synchronize()
        looks = [self._look(self._clock) for _ in range(LOOKS)]
        return min(looks)[1]

    def _look(self, clock: DeviceFunction) -> tuple[int, int]:
        """How long a look took, and the difference of the clocks at its middle."""
        there, before = np.zeros(1, np.int64), time.monotonic_ns()
        clock.launch(1, np.array([self._time.address]), (0, 0, 0, 0), self._stream, False)
        self._driver.download(there, self._time.address, self._stream)
        self._stream.synchronize()
        after = time.monotonic_ns()
        return after - before, (before + after) // 2 - int(there[0])

    def fill(
        self,
        rows: Sequence[np.ndarray],
        tasks: TaskGraph,
        launches: Sequence[Launch],
        owner: np.ndarray,
        shift: int,
    ) -> None:
        """Writes the workers' rows: block b is worker b modulo their number. A task of which nothing
        was noted is complete with the last that it waits for, and of one in many pieces, which `owner` tells of all
        numbers, the last piece is noted. `shift` leads from the device's clock to the host's."""
        found, launch_of = np.zeros((len(tasks), EVENT_WORDS), np.int64), np.full(len(tasks), -1, np.int64)
        order = np.concatenate([np.zeros(0, np.int64), *(launch.tasks for launch in launches)])
        order = owner[order]
        launch_of[order] = np.repeat(np.arange(len(launches)), [len(launch.tasks) for launch in launches])
        found[order] = self._noted()
        unnoted = found[:, 1] == 0  # tasks of no launch, or of calls of a library
        found[~unnoted, 1:3] += shift
        for t in np.flatnonzero(unnoted).tolist():
            deps = tasks.deps[tasks.dep_offsets[t] : tasks.dep_offsets[t + 1]]
            found[t, 1:3] = found[deps, 2].max(initial=shift)
        worker = found[:, 0] % len(rows)
        found[:, 3:] = _own_counts(found, launch_of)
        found[:, 0] = np.arange(len(tasks))
        by_time = np.argsort(found[:, 1], kind="stable")
        for k, own in enumerate(rows):
            mine = found[by_time[worker[by_time] == k]]
            mine[:, 3:] = mine[:, 3:].cumsum(axis=0)
            own[: len(mine)] = mine

    def at_work(self) -> list[int]:
        """Tasks that have begun and not ended, where runs are checked."""
        noted = self._noted()
        return np.flatnonzero(noted[:, 1] > noted[:, 2]).tolist()

    def _noted(self) -> np.ndarray:
        noted = np.zeros((self._tasks, EVENT_WORDS), np.int64)
        if self._pinned is not None:
            noted[:] = self._pinned.array[: noted.nbytes].view(np.int64).reshape(noted.shape)
        elif self._tasks:
            self._driver.download(noted, self.address, self._stream)
            self._stream.synchronize()
        return noted


def _own_counts(found: np.ndarray, launch_of: np.ndarray) -> np.ndarray:
    """Waits and revisits of each task alone, [tasks, 2]: blocks count from the beginning of their launch."""
    order = np.lexsort((found[:, 1], found[:, 0], launch_of))
    counts = found[order, 3:]
    follows = np.zeros(len(order), bool)
    follows[1:] = (np.diff(launch_of[order]) == 0) & (np.diff(found[order, 0]) == 0)
    own = np.empty_like(counts)
    own[order] = counts - np.where(follows[:, None], np.roll(counts, 1, axis=0), 0)
    return own
