"""A compiled network that runs band by band, from sources to sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count

import numpy as np

from brickrt.ops.cpu.isa import Isa
from brickrt.plan.stream.band_plan import BandPlan
from brickrt.plan.stream.stream_memory import persistent_bytes
from brickrt.plan.stream.stream_plan import StreamPlan
from brickrt.runtime.cpu.memory import Pages
from brickrt.runtime.cpu.program import ProgramSeries
from brickrt.runtime.cpu.worker_program import WorkerProgram
from brickrt.runtime.lowering.arena import view_aliases
from brickrt.runtime.lowering.inplace_slices import InplaceSlice, find_inplace_slices
from brickrt.runtime.lowering.owned_constants import KeptConstants
from brickrt.runtime.lowering.task_graph import TaskGraph
from brickrt.runtime.progress import KernelProgress
from brickrt.runtime.stream.band_programs import BandPrograms, Key
from brickrt.runtime.stream.lower_band import lower_band
from brickrt.runtime.stream.ring_memory import SweepMemory
from brickrt.runtime.stream.sweep_run import Files, RunThreads, Sink, Source, SweepRun, SweepWork

BEFORE_SWEEP = -1  # instead of a band


def _views(plan: StreamPlan) -> dict[str, str]:
    """The reshapes that need no copy, with what they are of: those of tensors that are held whole."""
    producers, chained, level = plan.plan.graph.producers, plan.swept.chained, plan.swept.level
    views = view_aliases(plan.plan).items()
    return {name: source for name, source in views if name not in level and producers[name] not in chained}


@dataclass(frozen=True)
class _Lowering:
    """Lowers what a plan runs. It knows nothing of the program that holds it, whose memory so goes with the last who
    uses it, and does not wait for the collection of garbage."""

    plan: StreamPlan
    resident: Mapping[int, BandPlan]
    slices: Mapping[str, InplaceSlice]
    aliases: Mapping[str, str]

    @classmethod
    def of(cls, plan: StreamPlan) -> _Lowering:
        """Finds what no band stores: parts of other tensors, and views."""
        slices = {n: part for n, part in find_inplace_slices(plan.plan).items() if n not in plan.swept.axes.rolls}
        between = ((number, plan.resident_plan(number)) for number in range(len(plan.sweeps) + 1))
        resident = {number: found for number, found in between if found is not None}
        return cls(plan, resident, slices, _views(plan))

    def lower(self, key: Key) -> TaskGraph:
        """The task graph of a band, or of what runs before a sweep."""
        sweep, band, skipped = key
        plan = self.resident[sweep] if band == BEFORE_SWEEP else self.plan.band_plan(sweep, band, skipped)
        return lower_band(plan, self.slices, self.aliases)


class StreamProgram:
    """Programs of the bands of a plan, with one memory."""

    _running: WorkerProgram | None

    def __init__(
        self,
        plan: StreamPlan,
        isa: Isa,
        threads: int,
        constants: Mapping[str, np.ndarray],
        work: Sequence[SweepWork] | None = None,
        progress: KernelProgress | None = None,
        held: int | None = None,
    ) -> None:
        """Lowers and compiles the bands of the work, which is all of every sweep by default: every distinct one, or
        where no more than `held` may be there at a time, the first, and the others while bands run."""
        self.plan, self.threads = plan, threads
        everything = [SweepWork(number, plan.bands(number, 0)) for number in range(len(plan.sweeps))]
        self.work = everything if work is None else list(work)
        lowering = _Lowering.of(plan)
        self._resident = lowering.resident
        series = ProgramSeries(isa, threads, KeptConstants(plan.plan.graph, constants), progress)
        self._programs = BandPrograms(series, lowering.lower, held)
        self._programs.expect(self._order(self.work))
        self.memory = Pages(persistent_bytes(plan)).fitting()
        self.sweeps = [SweepMemory(plan.plan, one, self.memory) for one in plan.sweeps]
        self.memory[:] = 0  # resident from now on: nothing is found missing in the middle of a run
        self._cancelled, self._running = False, None

    def _order(self, work: Sequence[SweepWork]) -> list[Key]:
        """What runs, one after the other: bands, and what runs between sweeps."""
        bands = {one.sweep: one for one in work}
        found, known = list[Key](), dict[Key, Key]()  # of bands that are alike one key: there may be 100,000s of them
        for number in range(len(self.plan.sweeps) + 1):
            if number in self._resident:
                found.append((number, BEFORE_SWEEP, frozenset()))
            if (one := bands.get(number)) is not None:
                keys = (self._key(one, band) for band in range(one.bands.first, one.bands.end))
                found += (known.setdefault(key, key) for key in keys)
        return found

    def _key(self, one: SweepWork, band: int) -> Key:
        skipped = self.plan.skipped(one.sweep, one.bands, band) if one.bands.starts else frozenset[int]()
        return one.sweep, int(self.plan.sweeps[one.sweep].like[band]), skipped

    def take(self, work: Sequence[SweepWork]) -> bool:
        """Runs other work from now on. False where that has bands unlike all that were compiled, if all that run must
        be: nothing changes."""
        if not self._programs.expect(self._order(work)):
            return False
        self.work = list(work)
        return True

    @property
    def bands(self) -> int:
        """How many bands run."""
        return sum(one.bands.end - one.bands.first for one in self.work)

    def cancel(self) -> None:
        """Ends the run under way after the band that it is at."""
        self._cancelled = True
        if self._running is not None:
            self._running.cancel()

    def run(self, files: Files, restore: Callable[[int], None] | None = None, last: int | None = None) -> None:
        """Reads the graph's inputs and writes its outputs, sweep by sweep, to the end or to the `last` sweep.
        `restore` puts the rows of collected tensors into memory that an earlier run of a sweep gave: before it runs, as
        other tensors may lie there before. Raises Cancelled after `cancel`."""
        self._cancelled, self._running = False, None
        self._fill_whole(files.sources)
        work, released, places = {one.sweep: one for one in self.work}, list[Future[None]](), count()
        with RunThreads.started(self.threads) as threads, self._programs.running():
            for number in range(len(self.plan.sweeps)):
                self._between(number, places)
                if restore is not None:
                    restore(number)
                if number in work:
                    self._sweep(work[number], files, threads, places)
                for name, spill in files.spills.items():
                    if self.plan.users(name)[-1] == number:  # a file system may take a second for a GiB
                        released.append(threads.releaser.submit(spill.release))
                if number == last:
                    break
            else:
                self._between(len(self.plan.sweeps), places)
            for one in released:
                one.result()
        if last is None:
            self._write_whole(files.sinks)

    def _sweep(self, one: SweepWork, files: Files, threads: RunThreads, places: Iterator[int]) -> None:
        def compute(_: int, bases: list[np.ndarray]) -> None:
            self._running = self._programs.at(next(places))
            self._running.run(bases, ())
            self._running = None

        SweepRun(one, self.sweeps[one.sweep], files, threads, compute).run(lambda: self._cancelled)

    def _between(self, number: int, places: Iterator[int]) -> None:
        """What runs on whole tensors before a sweep."""
        if number in self._resident:
            memory = self.sweeps[min(number, len(self.sweeps) - 1)]
            self._programs.at(next(places)).run(list(memory.at.values()), ())

    def _whole(self, name: str) -> np.ndarray:
        kind = self.plan.plan.graph.types[name]
        return self.sweeps[-1].at[name].view(kind.dtype).reshape(kind.shape)

    def _fill_whole(self, sources: Mapping[str, Source]) -> None:
        """Inputs that are not swept are read whole."""
        for name in self.plan.plan.graph.inputs:
            if name in self.plan.swept.resident:
                whole = self._whole(name)
                sources[name].read((0,) * whole.ndim, whole)

    def _write_whole(self, sinks: Mapping[str, Sink]) -> None:
        """Outputs that are not swept are written whole."""
        for name in self.plan.plan.graph.outputs:
            if name in self.plan.swept.resident:
                whole = self._whole(name)
                sinks[name].write((0,) * whole.ndim, whole)
