"""What a program keeps on the device, and the words by which the host and the blocks talk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from brickrt.runtime.cuda.driver.pinned_staging import PinnedWords
from brickrt.runtime.cuda.driver.protocol import Driver, Stream
from brickrt.runtime.cuda.kernels.kernel_context import (
    BEGUN,
    CANCELLED,
    COUNT_WORDS,
    COUNTS,
    FIRST_IO,
    LAST_EPOCH,
    TICKET_WORDS,
    Context,
)
from brickrt.runtime.cuda.memory.allocation import AllocationSections
from brickrt.runtime.cuda.program_tables import ProgramTables

SPIN_LIMIT = 1 << 23  # looks in vain, of about a microsecond each
Pieces = Sequence[tuple[int, np.ndarray]]  # byte offset, array


class DeviceState(AllocationSections):
    """Sections for the tables of tasks, and others: "arena", "scratch", "constants" and what else is needed.

    `context` are the words that launches have as an argument.
    """

    def __init__(
        self,
        driver: Driver,
        tables: ProgramTables,
        launches: int,
        io: int,
        sizes: Mapping[str, int],
        scratch_stride: int,
        checked: bool = False,
    ) -> None:
        """`launches` is their number, `io` that of the graph's inputs and outputs, `sizes` are the bytes of the other
        sections, `scratch_stride` those of one block's scratch. `checked`: see `Context`."""
        arrays = {
            "task_at": tables.table.task_at,
            "records": tables.table.records,
            "dep_offsets": tables.dep_offsets,
            "deps": tables.deps,
        }
        words = {
            "bases": 8 * (FIRST_IO + io + 1),  # then what `Context.events` points to
            "words": 4 * len(tables),
            "tickets": 8 * TICKET_WORDS * launches,
            "counts": 8 * COUNT_WORDS * launches,
            "stop": 8,
        }
        super().__init__(driver, {name: array.nbytes for name, array in arrays.items()} | words | dict(sizes))
        self._tables, self._runs = arrays, 0
        self._pinned = driver.pinned(8 * (1 + COUNT_WORDS * launches), "counts of launches")
        self._told = self._pinned.array.view(np.uint64)
        self._rows = self._told[1:].reshape(launches, COUNT_WORDS)
        self._counted = np.zeros(COUNTS, np.uint64)
        self._words, self._sent = PinnedWords(driver, io + 1), list[int]()
        self.context = Context(
            **{name: self[name] for name in (*arrays, *words)},
            told=self._pinned.address,
            events=self["bases"] + 8 * (FIRST_IO + io),
            scratch_stride=scratch_stride,
            spin_limit=SPIN_LIMIT,
            checked=int(checked),
        ).pack()

    def write(self, pieces: Mapping[str, Pieces], stream: Stream) -> None:
        """Writes what stays as it is: tables, bases, and pieces of sections."""
        bases = np.array([self[name] for name in ("scratch", "arena", "constants")], np.uint64)
        tables = ((name, 0, array) for name, array in (*self._tables.items(), ("bases", bases)))
        others = ((name, offset, array) for name, some in pieces.items() for offset, array in some)
        for name, offset, array in chain(tables, others):
            self.fill(name, array, stream, offset)
        stream.synchronize()

    def next_epoch(self, stream: Stream) -> None:
        """Before a run of launches by tickets. They count their epochs by themselves: here they begin anew in time."""
        self._runs += 1
        if self._runs > LAST_EPOCH:
            self._runs = 1
            for name in ("words", "tickets"):
                self.clear(name, stream)

    def tell(self, io: Sequence[int], events: int, stream: Stream) -> None:
        """Writes the addresses of inputs and outputs and of events (or 0), unless they are there already."""
        words = [*io, events]
        if words != self._sent:
            self._words.send(self["bases"] + 8 * FIRST_IO, words, stream)
            self._sent = words

    # ---- what the device tells without being asked

    @property
    def stopped(self) -> int:
        """The word that says why blocks stopped; 0 while all is well, or where it was the host that said so."""
        return int(self._told[0])

    @property
    def begun(self) -> np.ndarray:
        """How often each launch has begun, as words that blocks change; they can be read after a fault too."""
        return self._rows[:, BEGUN]

    def counted(self) -> list[int]:
        """What blocks have counted since this was last asked, in launches that have ended."""
        sums = self._rows[:, :COUNTS].sum(axis=0)
        found, self._counted = (sums - self._counted).tolist(), sums
        return found

    # ---- stopping

    def stop(self, stream: Stream) -> None:
        """Tells blocks to begin no more tasks."""
        self.fill("stop", np.array([CANCELLED], np.int64), stream)
        stream.synchronize()

    def go_on(self, stream: Stream) -> None:
        """Takes back what stopped them. No run may be under way: blocks that have left are missed by others."""
        self.clear("stop", stream)
        stream.synchronize()
        self._told[0] = 0
