"""The launches of a program on streams: by a schedule, as others end, all as one graph, or some by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property

import numpy as np

from brickrt.runtime.cuda.device_state import DeviceState
from brickrt.runtime.cuda.driver.device_errors import DeviceError
from brickrt.runtime.cuda.driver.protocol import CapturedGraph, CaptureRefused, DeviceFunction, Driver, Event, Stream
from brickrt.runtime.cuda.groups.cudnn_launches import LibraryCalls
from brickrt.runtime.cuda.schedule.dispatch import Dispatcher
from brickrt.runtime.cuda.schedule.launches import Launch
from brickrt.runtime.cuda.schedule.stream_schedule import Schedule


class Launcher:
    """Launch k is `grids[k]` blocks of `functions[k]`, or the library's where `calls` has it. Where it is `checked` the
    host waits for each. Raises DeviceError, with the launch where it is certain that it was that one."""

    def __init__(
        self,
        driver: Driver,
        launches: Sequence[Launch],
        schedule: Schedule,
        functions: Mapping[int, DeviceFunction],
        grids: Mapping[int, int],
        calls: LibraryCalls,
        memory: DeviceState,
        checked: bool = False,
    ) -> None:
        self._driver, self._launches, self._schedule, self._memory = driver, launches, schedule, memory
        self._functions, self._grids, self._calls, self._checked = functions, grids, calls, checked
        self._branches = [driver.stream() for _ in range(schedule.streams - 1)]
        self._events: dict[int, Event] = {k: driver.event() for k, turn in enumerate(schedule.turns) if turn.recorded}
        self._begun = driver.event()
        firsts = np.cumsum([0, *(len(launch.tasks) for launch in launches)])
        self._firsts: list[int] = firsts[:-1].tolist()

    def put(self, main: Stream) -> None:
        """Puts all launches on their streams; those but `main` begin and end with it."""
        streams = self._begin(main)
        for k, turn in enumerate(self._schedule.turns):
            for other in turn.waits:
                streams[turn.stream].wait(self._events[other])
            self._put(k, streams[turn.stream], turn.stream)
            if turn.recorded:
                self._events[k].record(streams[turn.stream])
        for k in self._schedule.tails:
            main.wait(self._events[k])

    def react(self, main: Stream, stopped: Callable[[], bool]) -> bool:
        """Puts launches on streams as others end; those but `main` begin and end with it. Returns when all are there,
        or False when `stopped` says that no more shall be."""
        streams = self._begin(main)
        return self._dispatcher.run(lambda k, number: self._put(k, streams[number], number), streams, stopped)

    def _begin(self, main: Stream) -> list[Stream]:
        """All streams, of which none begins before `main` is here."""
        self._begun.record(main)
        for stream in self._branches:
            stream.wait(self._begun)
        return [main, *self._branches]

    @cached_property
    def _dispatcher(self) -> Dispatcher:
        """As many streams as the schedule has suffice: where it has fewer than it may, each has launches that come
        after one another, so that no more can run side by side."""
        return Dispatcher(self._driver, [launch.after for launch in self._launches], self._schedule.streams)

    def put_some(self, which: Sequence[int], stream: Stream) -> None:
        """Puts launches on one stream, one after the other."""
        for k in which:
            self._put(k, stream, self._schedule.turns[k].stream)

    def graph(self, main: Stream, put: Callable[[Stream], None]) -> CapturedGraph:
        """What `put` puts on a stream, as a graph. Raises CaptureRefused."""
        with self._driver.capture(main) as graph:
            put(main)
        return graph()

    def alone(self, which: Sequence[int], main: Stream) -> Callable[[], None]:
        """Puts launches on a stream, one after the other; as one graph if that can be."""
        if self._checked:
            return lambda: self.put_some(which, main)
        with suppress(CaptureRefused):  # the time that is measured then has the host's in it
            graph = self.graph(main, lambda stream: self.put_some(which, stream))
            return lambda: graph.launch(main)
        return lambda: self.put_some(which, main)

    def warm(self, main: Stream) -> None:
        """Runs plans of the library one by one: what it loads or allocates at first use, it cannot in a capture."""
        streams = [main, *self._branches]
        numbers = [turn.stream for turn in self._schedule.turns]
        for k in self._calls.first_uses(numbers):
            self._put(k, streams[numbers[k]], numbers[k], True)

    def _put(self, k: int, stream: Stream, number: int, waits: bool = False) -> None:
        """Puts a launch on a stream, with the workspace that the stream of this number has; and `waits` for it."""
        waits = waits or self._checked
        try:
            self._launch(k, stream, number)
            if waits:
                stream.synchronize()
        except DeviceError as e:
            raise self._placed(e, k, waits) from None

    def _placed(self, error: DeviceError, k: int, waits: bool) -> DeviceError:
        """The error of a call for launch `k`. One that is no fault may come of one that an earlier launch took."""
        try:
            if not error.fatal:
                self._driver.check_alive()
        except DeviceError as e:
            error = e
        if waits or not error.fatal:
            error.launch = k
        return error

    def _launch(self, k: int, stream: Stream, number: int) -> None:
        launch, memory = self._launches[k], self._memory
        if k in self._calls.layers:
            self._calls.run(k, memory["arena"], memory["factors"], memory["workspace"], stream, number)
        else:
            numbers = self._firsts[k], len(launch.tasks), k, 0
            together = launch.kind == "persistent"
            self._functions[k].launch(self._grids[k], memory.context, numbers, stream, together)
