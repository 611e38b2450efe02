"""What a program keeps on the device, and the words by which the host and the blocks talk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from brickrt.runtime.cuda.build import Tables
from brickrt.runtime.cuda.context import CANCELLED, CONTEXT_WORDS, COUNTS, FIRST_END, LAST_EPOCH, Context
from brickrt.runtime.cuda.driver import Driver, Stream
from brickrt.runtime.cuda.memory import Parts

SPIN_LIMIT = 1 << 23  # looks in vain, of about a microsecond each
Pieces = Sequence[tuple[int, np.ndarray]]  # byte offset, array


class Resident(Parts):
    """Tables of `launches` launches, and `rooms`: bytes of "arena", "scratch", "constants" and what else is needed.

    `ends` inputs and outputs have words beside the context, so that both are written by one copy.
    """

    def __init__(
        self,
        driver: Driver,
        tables: Tables,
        launches: int,
        ends: int,
        rooms: Mapping[str, int],
        scratch_stride: int,
    ) -> None:
        arrays = {
            "task_at": tables.table.task_at,
            "records": tables.table.records,
            "dep_offsets": tables.dep_offsets,
            "deps": tables.deps,
        }
        words = {
            "context": 8 * (CONTEXT_WORDS + FIRST_END + ends),
            "words": 4 * len(tables),
            "tickets": 8 * launches,
            "counts": 8 * COUNTS,
            "stop": 8,
        }
        super().__init__(driver, {name: array.nbytes for name, array in arrays.items()} | words | dict(rooms))
        self._tables, self._launches = arrays, launches
        at = {name: self[name] for name in (*arrays, "words", "tickets", "counts", "stop")}
        bases = self["context"] + 8 * CONTEXT_WORDS
        self._context = Context(bases=bases, scratch_stride=scratch_stride, spin_limit=SPIN_LIMIT, **at)
        self._told: tuple[int, ...] = ()
        self._counted = np.zeros(COUNTS, np.int64)

    def write(self, pieces: Mapping[str, Pieces], stream: Stream) -> None:
        """Writes what stays as it is: tables, and pieces of parts."""
        tables = ((name, 0, array) for name, array in self._tables.items())
        others = ((name, offset, array) for name, some in pieces.items() for offset, array in some)
        for name, offset, array in chain(tables, others):
            self.fill(name, array, stream, offset)
        stream.synchronize()

    def next_epoch(self, stream: Stream) -> None:
        """For launches whose blocks wait for one another: all states and tickets of earlier runs count as none."""
        self._context.epoch += 1
        if self._context.epoch > LAST_EPOCH:
            self._context.epoch = 1
            for name in ("words", "tickets"):
                self.clear(name, stream)

    def tell(self, ends: Sequence[int], events: int, stream: Stream) -> None:
        """Writes the context and the addresses of inputs and outputs, unless they are there already."""
        told = (self._context.epoch, events, *ends)
        if told == self._told:
            return
        self._told, self._context.events = told, events
        bases = self["scratch"], self["arena"], self["constants"], *ends
        words = np.concatenate([self._context.pack(), np.array(bases, np.uint64).view(np.int64)])
        self.fill("context", words, stream)

    def ask(self, stream: Stream) -> tuple[np.ndarray, int]:
        """Waits for the stream; what blocks have counted since this was last asked, and the stop word."""
        sums, stop = np.zeros(COUNTS, np.int64), np.zeros(1, np.int64)
        self._driver.download(sums, self["counts"], stream)
        self._driver.download(stop, self["stop"], stream)
        stream.synchronize()
        counted, self._counted = sums - self._counted, sums
        return counted, int(stop[0])

    def stop(self, stream: Stream) -> None:
        """Tells blocks to begin no more tasks."""
        self.fill("stop", np.array([CANCELLED], np.int64), stream)
        stream.synchronize()

    def go_on(self, stream: Stream) -> None:
        """Takes back what stopped them."""
        self.clear("stop", stream)
        stream.synchronize()
