"""One sweep: rows of the next band are read, and those of the band before written, while a band runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from brickrt.ops.types import Shape
from brickrt.plan.stream.band_range import BandRange
from brickrt.plan.stream.band_schedule import BandSchedule
from brickrt.runtime.program_protocol import Cancelled
from brickrt.runtime.stream.ring_memory import SweepMemory


class Source(Protocol):
    """Where rows of an input come from."""

    def read(self, lo: tuple[int, ...], out: np.ndarray) -> None:
        """Fills `out` with the box of its shape that begins at `lo`."""
        ...


class Sink(Protocol):
    """Where rows of an output go."""

    def write(self, lo: tuple[int, ...], array: np.ndarray) -> None:
        """Takes the box that begins at `lo`."""
        ...


class Spill(Source, Sink, Protocol):
    """Where rows of a spilled tensor go, and come from, as bytes of what is stored: see `SweepMemory.stored_rows`."""

    def release(self) -> None:
        """No sweep reads the tensor any more."""
        ...


class BandListener(Protocol):
    """Is told of what a band gave, by the thread that writes, once it is written."""

    def outputs(self, sweep: int, band: int, boxes: Mapping[str, tuple[Shape, np.ndarray]]) -> None:
        """The rows of outputs, each with where it begins."""
        ...

    def spilled(self, sweep: int, band: int, boxes: Mapping[str, tuple[Shape, np.ndarray]]) -> None:
        """The rows of spilled tensors as they are stored, each with where it begins."""
        ...

    def collected(self, sweep: int, band: int, rows: Mapping[str, np.ndarray]) -> None:
        """The rows of tensors that are collected for later sweeps."""
        ...


@dataclass(frozen=True)
class Files:
    """What a run reads and writes, by the names of the graph's inputs and outputs, and of spilled tensors; who is told
    what is written."""

    sources: Mapping[str, Source]
    sinks: Mapping[str, Sink]
    written: BandListener | None = None
    spills: Mapping[str, Spill] = field(default_factory=dict)


@dataclass(frozen=True)
class RunThreads:
    """A thread that reads, one that writes, one that gives room on the disk back, and some that move rows."""

    reader: ThreadPoolExecutor
    writer: ThreadPoolExecutor
    releaser: ThreadPoolExecutor
    movers: ThreadPoolExecutor
    count: int

    @classmethod
    @contextmanager
    def started(cls, count: int) -> Iterator[RunThreads]:
        """The threads, `count` of which move rows; they have ended when this is left."""
        with ExitStack() as stack:
            numbers = (1, 1, 1, count)
            reader, writer, releaser, movers = (stack.enter_context(ThreadPoolExecutor(n)) for n in numbers)
            yield cls(reader, writer, releaser, movers, count)


@dataclass(frozen=True)
class SweepWork:
    """The bands of a sweep that run."""

    sweep: int
    bands: BandRange


class SweepRun:
    """A sweep under way. `compute(band, bases)` runs a band."""

    def __init__(
        self,
        work: SweepWork,
        memory: SweepMemory,
        files: Files,
        threads: RunThreads,
        compute: Callable[[int, list[np.ndarray]], None],
    ) -> None:
        self.work, self.bands, self.memory, self.files, self.threads = work, work.bands, memory, files, threads
        self.compute = compute
        self.schedule: BandSchedule = memory.schedule
        graph, spills = self.schedule.graph, files.spills
        self.outputs = [name for name in self.schedule.sinks if name in graph.outputs]
        self.spilled = [name for name in self.schedule.sinks if name in spills]
        self.collected = [name for name in self.schedule.targets if memory.is_collected(name)]
        self.writing: list[Future[None]] = []

    def run(self, cancelled: Callable[[], bool]) -> None:
        """All bands of the range."""
        reading = self.threads.reader.submit(self.read, self.bands.first, self.bands.first)
        try:
            for band in range(self.bands.first, self.bands.end):
                reading.result()
                self.await_writes(1)
                if cancelled():
                    raise Cancelled
                self.move(band)
                if band + 1 < self.bands.end:
                    reading = self.threads.reader.submit(self.read, band + 1, band)
                self.compute(band, self.memory.bases(band))
                self.writing.append(self.threads.writer.submit(self.write, band))
            self.await_writes(0)
        finally:
            reading.exception()  # memory must stay until nobody reads or writes
            for written in self.writing:
                written.exception()

    def await_writes(self, left: int) -> None:
        """Waits until so many bands are still to be written."""
        while len(self.writing) > left:
            self.writing.pop(0).result()

    def move(self, band: int) -> None:
        """Makes room in the rings that are full."""
        for name in self.memory.moving(band) if band > self.bands.first else ():
            rows, written = self.schedule.rows[name], name in self.schedule.sinks
            if written and not self.memory.leaves_alone(name, band):
                self.await_writes(0)
            hi = int(rows.hi[band] if name in self.schedule.sources else rows.hi[band - 1])
            copied = written and bool(self.writing)
            self.memory.move(name, band, self.threads.movers, self.threads.count, hi, copied)

    def read(self, band: int, during: int) -> None:
        """Reads the new rows of a band, into rings as they lie while another one runs."""
        for name in self.schedule.sources:
            rows = self.schedule.rows[name]
            lo, hi = int(rows.lo[band]), int(rows.hi[band])
            if lo < hi and self.bands.runs(name, band):
                if name in self.files.spills:
                    self.files.spills[name].read(*self.memory.stored_rows(name, during, lo, hi))
                else:
                    self.files.sources[name].read(*self.plain_rows(name, during, lo, hi))

    def write(self, band: int) -> None:
        """Writes the new rows of a band."""
        if band < self.bands.wanted:
            return
        boxes = self.new_rows(self.outputs, band, self.plain_rows)
        for name, box in boxes.items():
            self.files.sinks[name].write(*box)
        spilled = self.new_rows(self.spilled, band, self.memory.stored_rows)
        for name, box in spilled.items():
            self.files.spills[name].write(*box)
        if self.files.written is None:
            return
        if boxes:
            self.files.written.outputs(self.work.sweep, band, boxes)
        if spilled:
            self.files.written.spilled(self.work.sweep, band, spilled)
        if self.collected:
            parts = {name: self.memory.collected_rows(name, band) for name in self.collected}
            self.files.written.collected(self.work.sweep, band, parts)

    def new_rows(
        self, names: Iterable[str], band: int, rows_of: Callable[[str, int, int, int], tuple[Shape, np.ndarray]]
    ) -> dict[str, tuple[Shape, np.ndarray]]:
        """The rows that a band computed of some tensors, where it did."""
        ends = {
            name: (int(self.schedule.rows[name].lo[band]), int(self.schedule.rows[name].hi[band])) for name in names
        }
        return {name: rows_of(name, band, lo, hi) for name, (lo, hi) in ends.items() if lo < hi}

    def plain_rows(self, name: str, band: int, lo: int, hi: int) -> tuple[Shape, np.ndarray]:
        """The rows [lo, hi) of an input or output, and where they begin."""
        at = self.schedule.across[name].lo[0].tolist()
        at[self.schedule.axes.of(name)] = lo
        return tuple(at), self.memory.rows(name, band, lo, hi)
