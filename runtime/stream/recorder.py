"""The record of a run: what each band wrote goes into the journal once it is on the disk, and a later run goes on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.ops.types import Shape
from brickrt.plan.stream.band_schedule import BandSchedule
from brickrt.plan.stream.stream_plan import StreamPlan
from brickrt.runtime.files.identity import checksum
from brickrt.runtime.files.journal import Journal, stored_checksum, verify
from brickrt.runtime.files.journal import Key as JournalKey
from brickrt.runtime.files.scratch import ScratchFile
from brickrt.runtime.files.tensors import TensorSink
from brickrt.runtime.stream.ring_memory import SweepMemory
from brickrt.runtime.stream.sweep_run import SweepWork

COLLECTED = -1  # instead of an output's number: rows of tensors that later sweeps need
SPILLED = -2  # of the first spilled tensor; others follow downwards
Progress = Callable[[int, int], None]  # (sweep, band)
Box = tuple[Shape, np.ndarray]  # where it begins, and what it holds


@dataclass(frozen=True)
class WrittenFiles:
    """What bands write, each with the number that its units have in the journal: (sweep, band, number)."""

    sinks: Mapping[str, TensorSink]
    spills: Mapping[str, ScratchFile] = field(default_factory=dict)

    @cached_property
    def output_numbers(self) -> dict[str, int]:
        """By output."""
        return {name: number for number, name in enumerate(self.sinks)}

    @cached_property
    def spill_numbers(self) -> dict[str, int]:
        """By spilled tensor."""
        return {name: SPILLED - number for number, name in enumerate(self.spills)}


class JournalWriter:
    """Writes the journal of a run."""

    def __init__(self, journal: Journal, written: WrittenFiles, progress: Progress | None = None) -> None:
        self.journal, self.written, self.progress = journal, written, progress

    def outputs(self, sweep: int, band: int, boxes: Mapping[str, Box]) -> None:
        """See `BandListener`."""
        for name, (lo, array) in boxes.items():
            sink = self.written.sinks[name]
            sink.sync()
            self.journal.finish((sweep, band, self.written.output_numbers[name]), written_checksum(sink, lo, array))
        self._tell(sweep, band)

    def spilled(self, sweep: int, band: int, boxes: Mapping[str, Box]) -> None:
        """See `BandListener`."""
        for name, (_, array) in boxes.items():
            self.written.spills[name].sync()
            self.journal.finish((sweep, band, self.written.spill_numbers[name]), checksum(array))
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


def left_to_do(plan: StreamPlan, journal: Journal, written: WrittenFiles) -> list[SweepWork]:
    """The bands that are not finished, of each sweep from the first such one on. What was written is read again and
    compared: a band whose bytes are others is not finished. Of spilled tensors only those count that sweeps which are
    not finished read."""
    for name, sink in written.sinks.items():
        verify(journal, sink, sink.sink.dtype, _Boxes(plan, name, written.output_numbers[name]))
    work: list[SweepWork] = []
    needed = set[str]()
    for number in reversed(range(len(plan.sweeps))):
        schedule = plan.sweeps[number].schedule
        for name in needed.intersection(schedule.sinks):
            _verify_spill(plan, journal, written, name, number)
        bands = range(schedule.bands)
        first = next((b for b in bands if not _is_finished(plan, journal, written, number, b, needed)), bands.stop)
        if first < bands.stop:
            work.insert(0, SweepWork(number, plan.bands(number, first if first > schedule.ahead else 0)))
            needed.update(name for name in schedule.sources if name in written.spills)
    return work


class _Boxes:
    """Where the units of one output lie in it."""

    def __init__(self, plan: StreamPlan, name: str, number: int) -> None:
        self.plan, self.name, self.number = plan, name, number

    def __call__(self, key: JournalKey) -> tuple[Shape, Shape] | None:
        sweep, band, output = key
        if output != self.number:
            return None
        box = self.plan.sweeps[sweep].schedule.box(self.name, band)
        return tuple(box.lo[0].tolist()), tuple(box.extents[0].tolist())


def _verify_spill(plan: StreamPlan, journal: Journal, written: WrittenFiles, name: str, sweep: int) -> None:
    """Takes the bands of a spilled tensor from those that are finished whose bytes are others than then."""
    rows, axis = plan.sweeps[sweep].schedule.rows[name], plan.swept.axes.of(name)
    shape, file = plan.spill_shapes()[name], written.spills[name]
    for band, (lo, hi) in enumerate(zip(rows.lo.tolist(), rows.hi.tolist(), strict=True)):
        record = journal.finished.get((sweep, band, written.spill_numbers[name]))
        if record is None:
            continue
        begin = tuple(lo if k == axis else 0 for k in range(len(shape)))
        extents = tuple(hi - lo if k == axis else extent for k, extent in enumerate(shape))
        try:
            whole = file.checksum(begin, extents) == record.checksum
        except BrickError:  # the file is shorter, or missing
            whole = False
        if not whole:
            del journal.finished[sweep, band, written.spill_numbers[name]]


def _is_finished(
    plan: StreamPlan, journal: Journal, written: WrittenFiles, number: int, band: int, needed: Collection[str]
) -> bool:
    """Whether all that a band gives is in the journal; of spilled tensors those that are needed."""
    schedule = plan.sweeps[number].schedule
    numbers = [
        written.output_numbers[name] for name in schedule.sinks if name in written.sinks and _some(schedule, name, band)
    ]
    numbers += [
        written.spill_numbers[name] for name in schedule.sinks if name in needed and _some(schedule, name, band)
    ]
    if any(name in plan.swept.collected for name in schedule.targets):
        numbers.append(COLLECTED)
    return all((number, band, k) in journal.finished for k in numbers)


def _some(schedule: BandSchedule, name: str, band: int) -> bool:
    """Whether a band writes rows of a tensor."""
    return bool(schedule.box(name, band).volumes[0])


def restore_collected(
    plan: StreamPlan, journal: Journal, memory: list[SweepMemory], work: list[SweepWork], number: int
) -> None:
    """Puts rows of the collected tensors of a sweep into memory that an earlier run had finished."""
    schedule, begins = plan.sweeps[number].schedule, {one.sweep: one.bands.wanted for one in work}
    names = [name for name in schedule.targets if memory[number].is_collected(name)]
    for band in range(begins.get(number, schedule.bands)) if names else ():
        payload, at = journal.results((number, band, COLLECTED)), 0
        for name in names:
            rows = memory[number].collected_rows(name, band)
            rows[...] = np.frombuffer(payload, np.uint8, rows.size, at).reshape(rows.shape)
            at += rows.size
