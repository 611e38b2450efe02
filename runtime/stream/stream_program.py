"""A compiled network that runs band by band, from sources to sinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

import numpy as np

from brickrt.ops.cpu.isa import Isa
from brickrt.plan.stream.band_plan import BandPlan
from brickrt.plan.stream.stream_memory import persistent_bytes
from brickrt.plan.stream.stream_plan import StreamPlan
from brickrt.runtime.cpu.memory import HugePagePool
from brickrt.runtime.cpu.program import compile_programs
from brickrt.runtime.cpu.worker_program import WorkerProgram
from brickrt.runtime.lowering.arena import view_aliases
from brickrt.runtime.lowering.inplace_slices import find_inplace_slices
from brickrt.runtime.lowering.owned_constants import KeptConstants
from brickrt.runtime.progress import KernelProgress
from brickrt.runtime.stream.lower_band import lower_band
from brickrt.runtime.stream.ring_memory import SweepMemory
from brickrt.runtime.stream.sweep_run import Files, RunThreads, Sink, Source, SweepRun, SweepWork

BETWEEN = -1  # instead of a band: what runs before a sweep
Key = tuple[int, int, frozenset[int]]  # sweep, band, units that it leaves out


def _views(plan: StreamPlan) -> dict[str, str]:
    """The reshapes that need no copy, with what they are of: those of tensors that are held whole."""
    producers, chained, level = plan.plan.graph.producers, plan.swept.chained, plan.swept.level
    views = view_aliases(plan.plan).items()
    return {name: source for name, source in views if name not in level and producers[name] not in chained}


class StreamProgram:
    """Programs of all distinct bands of a plan, with one memory."""

    _running: WorkerProgram | None

    def __init__(
        self,
        plan: StreamPlan,
        isa: Isa,
        threads: int,
        constants: Mapping[str, np.ndarray],
        work: Sequence[SweepWork] | None = None,
        progress: KernelProgress | None = None,
    ) -> None:
        """Lowers and compiles every distinct band of the work, which is all of every sweep by default."""
        self.plan, self.threads = plan, threads
        everything = [SweepWork(number, plan.bands(number, 0)) for number in range(len(plan.sweeps))]
        self.work = everything if work is None else list(work)
        rolls, views = plan.swept.axes.rolls, _views(plan)
        slices = {name: part for name, part in find_inplace_slices(plan.plan).items() if name not in rolls}
        keys = self._distinct()
        self.programs: dict[Key, WorkerProgram] = {}
        if keys:  # a run that was ended after its last band has none left
            tasks = (lower_band(self._band_plan(key), slices, views) for key in keys)
            found = compile_programs(tasks, isa, threads, KeptConstants(plan.plan.graph, constants), progress)
            self.programs = dict(zip(keys, found, strict=True))
        self.memory = HugePagePool().empty(persistent_bytes(plan))
        self.sweeps = [SweepMemory(plan.plan, one, self.memory) for one in plan.sweeps]
        self.memory[:] = 0  # resident from now on: nothing is found missing in the middle of a run
        self._cancelled, self._running = False, None

    def _distinct(self) -> list[Key]:
        """All bands that differ, and what runs between sweeps."""
        bands = ((one, band) for one in self.work for band in range(one.bands.first, one.bands.end))
        found = dict.fromkeys(self._key(one, band) for one, band in bands)
        between = (number for number in range(len(self.plan.sweeps) + 1) if self.plan.resident_plan(number))
        return [*found, *((number, BETWEEN, frozenset[int]()) for number in between)]

    def _band_plan(self, key: Key) -> BandPlan:
        """The plan of a band, or of what runs before a sweep."""
        sweep, band, skipped = key
        resident = self.plan.resident_plan(sweep) if band == BETWEEN else None
        return resident or self.plan.band_plan(sweep, band, skipped)

    def _key(self, one: SweepWork, band: int) -> Key:
        skipped = self.plan.skipped(one.sweep, one.bands, band) if one.bands.starts else frozenset[int]()
        return one.sweep, int(self.plan.sweeps[one.sweep].like[band]), skipped

    def take(self, work: Sequence[SweepWork]) -> bool:
        """Runs other work from now on. False where that has bands unlike all that were compiled: nothing changes."""
        keys = {self._key(one, band) for one in work for band in range(one.bands.first, one.bands.end)}
        if not keys <= self.programs.keys():
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

    def run(self, files: Files) -> None:
        """Reads the graph's inputs and writes its outputs, sweep by sweep. Raises Cancelled after `cancel`."""
        self._cancelled, self._running = False, None
        self._fill_whole(files.sources)
        work, released = {one.sweep: one for one in self.work}, list[Future[None]]()
        with RunThreads.started(self.threads) as threads:
            for number in range(len(self.plan.sweeps)):
                self._between(number)
                if number in work:
                    self._sweep(work[number], files, threads)
                for name, spill in files.spills.items():
                    if self.plan.users(name)[-1] == number:  # a file system may take a second for a GiB
                        released.append(threads.releaser.submit(spill.release))
            for one in released:
                one.result()
        self._between(len(self.plan.sweeps))
        self._write_whole(files.sinks)

    def _sweep(self, one: SweepWork, files: Files, threads: RunThreads) -> None:
        def compute(band: int, bases: list[np.ndarray]) -> None:
            self._running = self.programs[self._key(one, band)]
            self._running.run(bases, ())
            self._running = None

        SweepRun(one, self.sweeps[one.sweep], files, threads, compute).run(lambda: self._cancelled)

    def _between(self, number: int) -> None:
        """What runs on whole tensors before a sweep."""
        program = self.programs.get((number, BETWEEN, frozenset()))
        if program is not None:
            memory = self.sweeps[min(number, len(self.sweeps) - 1)]
            program.run(list(memory.at.values()), ())

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
