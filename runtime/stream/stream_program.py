"""A compiled network that runs band by band, from sources to sinks."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from brickrt.ops.cpu.isa import Isa
from brickrt.ops.types import Shape
from brickrt.plan.stream.stream_plan import StreamPlan
from brickrt.runtime.cpu.memory import HugePagePool
from brickrt.runtime.cpu.program import CpuProgram, compile_parts
from brickrt.runtime.lowering.arena import view_aliases
from brickrt.runtime.lowering.inplace_slices import find_inplace_slices
from brickrt.runtime.lowering.owned_constants import KeptConstants
from brickrt.runtime.progress import KernelProgress
from brickrt.runtime.stream.boxes_io import Sink, Source
from brickrt.runtime.stream.lower_band import lower_band
from brickrt.plan.stream.stream_memory import persistent_bytes
from brickrt.runtime.stream.ring_memory import SweepMemory

BETWEEN = -1  # instead of a band: what runs before a sweep


class StreamProgram:
    """Programs of all distinct bands of a plan, with one memory."""

    def __init__(
        self,
        plan: StreamPlan,
        isa: Isa,
        threads: int,
        constants: Mapping[str, np.ndarray],
        progress: KernelProgress | None = None,
    ) -> None:
        """Lowers and compiles every distinct band."""
        self.plan, self.threads = plan, threads
        slices, views = find_inplace_slices(plan.plan), view_aliases(plan.plan)
        keys = [(number, int(band)) for number, one in enumerate(plan.sweeps) for band in np.unique(one.like)]
        bands = {key: plan.band_plan(*key) for key in keys}
        for number in range(len(plan.sweeps) + 1):
            resident = plan.resident_plan(number)
            if resident is not None:
                bands[number, BETWEEN] = resident
        tasks = [lower_band(band, slices, views) for band in bands.values()]
        parts = compile_parts(tasks, isa, threads, KeptConstants(plan.plan.graph, constants), progress)
        self.programs = {key: CpuProgram(parts, table) for key, table in zip(bands, parts.tables, strict=True)}
        self.memory = HugePagePool().empty(persistent_bytes(plan))
        self.sweeps = [SweepMemory(plan.plan, one, self.memory) for one in plan.sweeps]

    def run(self, sources: Mapping[str, Source], sinks: Mapping[str, Sink]) -> None:
        """Reads the graph's inputs and writes its outputs, sweep by sweep."""
        self._fill_whole(sources)
        with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as writer:
            with ThreadPoolExecutor(self.threads) as movers:
                for number in range(len(self.plan.sweeps)):
                    self._between(number)
                    _SweepRun(self, number, sources, sinks, (reader, writer, movers)).run()
        self._between(len(self.plan.sweeps))
        self._write_whole(sinks)

    def _between(self, number: int) -> None:
        """What runs on whole tensors before a sweep."""
        program = self.programs.get((number, BETWEEN))
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


class _SweepRun:
    """One sweep. Rows of the next band are read, and those of the band before written, while a band runs."""

    def __init__(
        self,
        program: StreamProgram,
        number: int,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        helpers: tuple[ThreadPoolExecutor, ThreadPoolExecutor, ThreadPoolExecutor],
    ) -> None:
        self.program, self.number, self.one = program, number, program.plan.sweeps[number]
        self.memory, self.schedule = program.sweeps[number], self.one.schedule
        self.sources, self.sinks = sources, sinks
        self.reader, self.writer, self.movers = helpers
        graph = program.plan.plan.graph
        self.inputs = [name for name in graph.inputs if name in self.schedule.rows]
        self.outputs = [name for name in graph.outputs if name in self.schedule.targets]
        self.reading: Future[None] | None = None
        self.writing: list[Future[None]] = []

    def run(self) -> None:
        """All bands."""
        bands = self.schedule.bands
        self.reading = self.reader.submit(self.read, 0, 0)
        for band in range(bands):
            assert self.reading is not None
            self.reading.result()
            while len(self.writing) > 1:
                self.writing.pop(0).result()
            self.move(band)
            if band + 1 < bands:
                self.reading = self.reader.submit(self.read, band + 1, band)
            self.program.programs[self.number, int(self.one.like[band])].run(self.memory.bases(band), ())
            self.writing.append(self.writer.submit(self.write, band))
        for written in self.writing:
            written.result()

    def move(self, band: int) -> None:
        """Makes room in the rings that are full."""
        for name in self.memory.moving(band):
            rows = self.schedule.rows[name]
            hi = int(rows.hi[band] if name in self.inputs else rows.hi[band - 1])
            if name in self.outputs:
                while self.writing:
                    self.writing.pop(0).result()
            self.memory.move(name, band, self.movers, self.program.threads, hi)

    def read(self, band: int, during: int) -> None:
        """Reads the new rows of a band, into rings as they lie while another one runs."""
        for name in self.inputs:
            rows, across = self.schedule.rows[name], self.schedule.across[name]
            lo, hi = int(rows.lo[band]), int(rows.hi[band])
            if lo < hi:
                self.sources[name].read(self.corner(across.lo[0], lo), self.memory.rows(name, during, lo, hi))

    def write(self, band: int) -> None:
        """Writes the new rows of a band."""
        for name in self.outputs:
            rows, across = self.schedule.rows[name], self.schedule.across[name]
            lo, hi = int(rows.lo[band]), int(rows.hi[band])
            if lo < hi:
                self.sinks[name].write(self.corner(across.lo[0], lo), self.memory.rows(name, band, lo, hi))

    def corner(self, first: np.ndarray, row: int) -> Shape:
        """The first index of rows that begin at `row`."""
        at = [int(index) for index in first]
        at[self.schedule.axis] = row
        return tuple(at)
