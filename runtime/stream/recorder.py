"""The record of a run: what each band wrote goes into the journal once it is on the disk, and a later run goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from brickrt.ops.types import Shape
from brickrt.plan.stream.stream_plan import StreamPlan
from brickrt.runtime.files.journal import Journal, checksum, stored_checksum, verify
from brickrt.runtime.files.journal import Key as JournalKey
from brickrt.runtime.files.tensors import TensorSink
from brickrt.runtime.stream.ring_memory import SweepMemory
from brickrt.runtime.stream.sweep_run import SweepWork

COLLECTED = -1  # instead of an output's number: rows of tensors that later sweeps need
Progress = Callable[[int, int], None]  # (sweep, band)


class JournalWriter:
    """Writes the journal of a run. Units are (sweep, band, output)."""

    def __init__(self, journal: Journal, sinks: Mapping[str, TensorSink], progress: Progress | None = None) -> None:
        self.journal, self.sinks, self.progress = journal, sinks, progress
        self.numbers = {name: number for number, name in enumerate(sinks)}

    def outputs(self, sweep: int, band: int, boxes: Mapping[str, tuple[Shape, np.ndarray]]) -> None:
        """See `BandListener`."""
        for name, (lo, array) in boxes.items():
            sink = self.sinks[name]
            sink.sync()
            self.journal.finish((sweep, band, self.numbers[name]), written_checksum(sink, lo, array))
        self._tell(sweep, band)

    def collected(self, sweep: int, band: int, rows: Mapping[str, np.ndarray]) -> None:
        """See `BandListener`."""
        payload = b"".join(np.ascontiguousarray(part).tobytes() for part in rows.values())
        self.journal.finish((sweep, band, COLLECTED), "", payload)
        self._tell(sweep, band)

    def _tell(self, sweep: int, band: int) -> None:
        if self.progress is not None:
            self.progress(sweep, band)


def written_checksum(sink: TensorSink, lo: Shape, array: np.ndarray) -> str:
    """The checksum of a box as the file has it."""
    return checksum(array) if sink.as_it_is else stored_checksum(sink, sink.sink.dtype, lo, array.shape)


def left_to_do(plan: StreamPlan, journal: Journal, sinks: Mapping[str, TensorSink]) -> list[SweepWork]:
    """The bands that are not finished, of each sweep from the first such one on. What was written is read again and
    compared: a band whose bytes are others is not finished."""
    for number, sink in enumerate(sinks.values()):
        verify(journal, sink, sink.sink.dtype, _Boxes(plan, tuple(sinks), number))
    work = []
    for number, one in enumerate(plan.sweeps):
        bands = one.schedule.bands
        first = next((band for band in range(bands) if not _is_finished(plan, journal, sinks, number, band)), bands)
        if first < bands:
            work.append(SweepWork(number, plan.bands(number, first if first > one.schedule.ahead else 0)))
    return work


class _Boxes:
    """Where the units of one output lie in it."""

    def __init__(self, plan: StreamPlan, names: tuple[str, ...], number: int) -> None:
        self.plan, self.name, self.number = plan, names[number], number

    def __call__(self, key: JournalKey) -> tuple[Shape, Shape] | None:
        sweep, band, output = key
        if output != self.number:
            return None
        box = self.plan.sweeps[sweep].schedule.box(self.name, band)
        return tuple(box.lo[0].tolist()), tuple(box.extents[0].tolist())


def _is_finished(plan: StreamPlan, journal: Journal, sinks: Mapping[str, TensorSink], number: int, band: int) -> bool:
    """Whether all that a band gives is in the journal."""
    schedule = plan.sweeps[number].schedule
    names = {name: k for k, name in enumerate(sinks)}
    wanted = [names[n] for n in schedule.targets if n in names and schedule.box(n, band).volumes[0]]
    if any(name in plan.swept.collected for name in schedule.targets):
        wanted.append(COLLECTED)
    return all((number, band, k) in journal.finished for k in wanted)


def restore_collected(plan: StreamPlan, journal: Journal, memory: list[SweepMemory], work: list[SweepWork]) -> None:
    """Puts rows of collected tensors that an earlier run had finished into memory."""
    begins = {one.sweep: one.bands.wanted for one in work}
    for number, one in enumerate(plan.sweeps):
        names = [name for name in one.schedule.targets if memory[number].is_collected(name)]
        for band in range(begins.get(number, one.schedule.bands)) if names else ():
            payload, at = journal.finished[number, band, COLLECTED].payload, 0
            for name in names:
                rows = memory[number].collected_rows(name, band)
                rows[...] = np.frombuffer(payload, np.uint8, rows.size, at).reshape(rows.shape)
                at += rows.size
