"""Programs of bands while a plan runs: of all bands that differ, or of a few at a time, which are made as bands come.

Tables of networks whose bands are all unlike each other, as where a Resize has an odd factor, or of very many passes,
may take more memory than all else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from brickrt.runtime.cpu.program import ProgramSeries
from brickrt.runtime.cpu.worker_program import WorkerProgram
from brickrt.runtime.lowering.task_graph import TaskGraph

Key = tuple[int, int, frozenset[int]]  # sweep, band, units that it leaves out
NEVER = 1 << 62  # later than any band
PLACES_AHEAD = 16  # of the order, that are looked at for what is made next


class BandPrograms:
    """Programs by what they do. At most `held` of them are there at a time, one that is being made included; all of
    them where it is None. `lower` makes the task graph of one. Any thread may run them; one at a time asks for them."""

    def __init__(self, series: ProgramSeries, lower: Callable[[Key], TaskGraph], held: int | None = None) -> None:
        assert held is None or held > 1, held
        self._series, self._lower, self.held = series, lower, held
        self._made: dict[Key, WorkerProgram] = {}
        self._order: Sequence[Key] = ()
        self._at: dict[Key, list[int]] = {}  # where in the order
        self._ahead: tuple[Key, Future[WorkerProgram]] | None = None
        self._maker: ThreadPoolExecutor | None = None

    def expect(self, order: Sequence[Key]) -> bool:
        """Takes these for the programs that are run next, in this order. All of them are made now, or the first where
        few are there at a time. Once some are there no others are made, if all are to be held: False where one that is
        expected is not there, and then nothing changes."""
        if self.held is None and self._made and not set(order) <= self._made.keys():
            return False
        self._order, self._at = order, {}
        for at, key in enumerate(order):
            self._at.setdefault(key, []).append(at)
        now = list(self._at)[: None if self.held is None else 1]
        missing = [key for key in now if key not in self._made]
        if missing:
            self._make_room(0, len(missing))
            self._made.update(zip(missing, self._series.make(map(self._lower, missing)), strict=True))
        return True

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, programs that follow are made while one runs. Nothing is made any more when this is left."""
        if self.held is None:
            yield
            return
        with ThreadPoolExecutor(1) as self._maker:
            try:
                yield
            finally:
                if self._ahead is not None:
                    self._ahead[1].exception()  # waits: nothing is made once this is left
                self._ahead = self._maker = None

    def at(self, place: int) -> WorkerProgram:
        """The program at a place of the order, which is run before another is asked for."""
        key = self._order[place]
        if self._ahead is not None and (self._ahead[1].done() or key not in self._made):
            self._take_in()
        if key not in self._made:  # the first, or one that was given up for others
            self._make_room(place, 1)
            (self._made[key],) = self._series.make([self._lower(key)], reserve=self._maker is None)
        if self._maker is not None and self._ahead is None and (following := self._worth_making(place)) is not None:
            self._make_room(place, 1)
            self._ahead = following, self._maker.submit(self._one, following)
        return self._made[key]

    def _take_in(self) -> None:
        """Waits for the program that is being made."""
        if self._ahead is not None:
            key, made = self._ahead
            self._ahead = None
            self._made[key] = made.result()

    def _one(self, key: Key) -> WorkerProgram:
        (made,) = self._series.make([self._lower(key)], reserve=False)
        return made

    def _worth_making(self, place: int) -> Key | None:
        """The next program in the order that is not there, if it is run before all of those that would be given up."""
        for at in range(place + 1, min(place + 1 + PLACES_AHEAD, len(self._order))):
            if self._order[at] not in self._made:
                full = self.held is not None and len(self._made) >= self.held
                return self._order[at] if not full or self._next(self._latest(place), place) > at else None
        return None

    def _latest(self, place: int) -> Key:
        """The program that is run latest after a place, or never, of those that are there; not what is run there."""
        keeps = self._order[place]
        return max((key for key in self._made if key != keeps), key=lambda key: self._next(key, place))

    def _make_room(self, place: int, count: int) -> None:
        """Gives up what is run latest after a place of the order, until there is room for `count` more."""
        while self.held is not None and len(self._made) + count > self.held:
            del self._made[self._latest(place)]

    def _next(self, key: Key, place: int) -> int:
        """Where in the order a program is run next."""
        places = self._at.get(key, ())
        at = bisect_left(places, place)
        return places[at] if at < len(places) else NEVER
