"""A model from files to files in a stated amount of memory: planned, refused or run, and resumed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from brickrt.graph.errors import callers_own, last_resort
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.ops.types import TensorType
from brickrt.plan.stream.row_axes import RowAxes
from brickrt.plan.stream.stream_plan import StreamPlan
from brickrt.runtime.cache.plan_cache import model_digest
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.files.journal import Journal, journal_path
from brickrt.runtime.files.kept_outputs import MOST_COLUMNS, OutputLayout, is_kept, kept_outputs, opened_sinks
from brickrt.runtime.files.scratch import ScratchFolder, scratch_path
from brickrt.runtime.files.tensors import TensorSink, TensorSource
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.program_protocol import Cancelled
from brickrt.runtime.stream.boxes_io import CountedSink, CountedSource, Traffic
from brickrt.runtime.stream.recorder import JournalWriter, WrittenFiles, left_to_do, restore_collected
from brickrt.runtime.stream.resident import peak_bytes
from brickrt.runtime.stream.stream_planning import plan_stream
from brickrt.runtime.stream.stream_report import StreamOptions, StreamProgress, StreamReport, Watch, tall
from brickrt.runtime.stream.sweep_run import Files, SweepWork

if TYPE_CHECKING:
    from brickrt.runtime.stream.stream_program import StreamProgram

CUT = "bands"  # in the journal's header


class StreamJob:
    """One model on one set of files. `candidate` is what was chosen, known before anything is lowered."""

    def __init__(
        self,
        pipeline: Pipeline,
        source: SourceGraph,
        inputs: Mapping[str, TensorSource],
        options: StreamOptions,
        watch: Watch | None = None,
        spill_into: Path | None = None,
    ) -> None:
        """Plans; nothing is spilled where no folder is named to measure the disk of, but what an earlier run spilled.
        Raises BrickError with the least memory that would do where the limit is below, and naming the node
        where a network is not run band by band."""
        self.pipeline, self.inputs, self.options, self.watch = pipeline, dict(inputs), options, watch
        types = {name: TensorType(one.shape, one.dtype) for name, one in inputs.items()}
        asked = options.max_memory, options.cut, self._reading, spill_into, options.sharing
        self.planned = plan_stream(pipeline, source, types, *asked, had_before=options.had_before)
        self.plan, self.candidate, self.limit = self.planned.plan, self.planned.candidate, self.planned.limit
        self.plan_s = self.planned.plan_s
        self.finished = 0  # bands, of all
        self._program: StreamProgram | None = None
        self._cancelled = False

    def _reading(self, axes: RowAxes) -> int:
        """Bytes that readers hold, once they know along which axis bands follow each other."""
        for name, one in self.inputs.items():
            one.axis = axes.axes.get(name, one.axis)
        return sum(one.buffer_bytes for one in self.inputs.values())

    @property
    def stream(self) -> StreamPlan:
        """The sweeps."""
        return self.candidate.plan

    def run(self, outputs: Mapping[str, str | Path]) -> StreamReport:
        """Writes the outputs to files. What is finished is kept, where the run ends early, for one that resumes. Raises
        BrickError for files that cannot be read or written, and Cancelled after `cancel`."""
        first = next(iter(outputs.values()))
        path, opened = journal_path(first), partial(self._sinks, outputs)
        with kept_outputs(opened, path, self._header, self.options.resume) as (sinks, journal):
            at, resume = scratch_path(first, self.options.scratch), self.options.resume
            with ScratchFolder(at, self.stream.spill_shapes(), resume, lambda: is_kept(journal, resume)) as scratch:
                return self._run(journal, WrittenFiles(sinks, scratch.files))

    def _run(self, journal: Journal, written: WrittenFiles) -> StreamReport:
        from brickrt.runtime.stream.stream_program import StreamProgram  # here: what is refused needs no compiler

        began, plan, sinks = time.perf_counter(), self.stream, written.sinks
        work = left_to_do(plan, journal, written)
        with last_resort(lambda: "compiling bands"):
            isa, held = host_isa(self.pipeline.engine.spec), self.candidate.memory.held
            shared = self.pipeline.threads, self.plan.graph.constants, work, self.pipeline.compiling
            program = StreamProgram(plan, isa, *shared, held)
        self._program, ready, traffic = program, time.perf_counter(), Traffic()
        if self._cancelled:
            raise Cancelled
        told = _Countdown(self, work, traffic)
        with last_resort(lambda: "running bands"):
            program.run(
                Files(
                    {name: CountedSource(one, traffic) for name, one in self.inputs.items()},
                    {name: CountedSink(sink, traffic) for name, sink in sinks.items()},
                    JournalWriter(journal, written, told.tell),
                    written.spills,
                ),
                lambda number: restore_collected(plan, journal, program.sweeps, work, number),
            )
        return StreamReport(
            plan=plan,
            memory=self.candidate.memory,
            limit=self.limit,
            peak=peak_bytes(),
            bands=program.bands,
            all_bands=self.all_bands,
            plan_s=self.plan_s,
            compile_s=ready - began,
            run_s=time.perf_counter() - ready,
            bytes_read=traffic.read,
            bytes_written=traffic.written,
            nonfinite=traffic.nonfinite,
            outputs={name: sink.name for name, sink in sinks.items()},
            spilling=self.planned.spilling,
            transformed=self.planned.transformed,
        )

    @property
    def all_bands(self) -> int:
        """Bands of all sweeps."""
        return sum(one.schedule.bands for one in self.stream.sweeps)

    def cancel(self) -> None:
        """Ends the run under way, or the next; what it finished is kept."""
        self._cancelled = True
        if self._program is not None:
            self._program.cancel()

    def _sinks(self, outputs: Mapping[str, str | Path]) -> dict[str, TensorSink]:
        graph, layouts = self.plan.graph, {}
        for name in graph.outputs:
            axis = min(self.stream.swept.axes.of(name), graph.types[name].rank - 1)
            layouts[name] = OutputLayout(graph.types[name], axis, self._chunks(name))
        return opened_sinks(layouts, outputs, next(iter(self.inputs.values())), self.options)

    def _chunks(self, name: str) -> tuple[int, ...]:
        """Chunks that bands and strips write whole."""
        shape = self.plan.graph.types[name].shape
        schedules = [one.schedule for one in self.stream.sweeps if name in one.schedule.rows]
        if not schedules:
            return shape
        rows = max(1, max(schedule.rows[name].fresh for schedule in schedules))
        widths = [schedule.across[name].extents[0].tolist() for schedule in schedules]
        axis = self.stream.swept.axes.of(name)
        behind = [min(MOST_COLUMNS, *(width[k] for width in widths)) for k in range(axis + 1, len(shape))]
        return (*shape[:axis], rows, *behind)

    def _header(self) -> dict[str, str]:
        """What a run that resumes must have in common with the one that was ended."""
        stream, spec = self.stream, self.pipeline.engine.spec
        cuts = f"{stream.rows} {stream.strips} {[unit.brick for unit in stream.units]}"
        return {
            "model": model_digest(self.plan.graph, self.plan.device, self.plan.options, self.plan.graph.constants),
            "input": " ".join(f"{name}:{one.identity()}" for name, one in sorted(self.inputs.items())),
            "plan": hashlib.sha256(cuts.encode()).hexdigest()[:32],
            CUT: str(self.planned.cut),
            "instruction set": spec.isa,
            "output": f"{self.options.stored} {self.options.scale}",
        }


class _Countdown:
    """Tells how far the run is."""

    def __init__(self, job: StreamJob, work: list[SweepWork], traffic: Traffic) -> None:
        self.job, self.traffic, self.began = job, traffic, time.perf_counter()
        left = sum(one.bands.end - one.bands.wanted for one in work)
        self.before = job.finished = job.all_bands - left
        self.tall = tall(job.stream)

    def tell(self, sweep: int, band: int) -> None:
        """The results of a band are on the disk."""
        job, sweeps = self.job, self.job.stream.sweeps
        job.finished = sum(one.schedule.bands for one in sweeps[:sweep]) + band + 1
        if job.watch is None:
            return
        schedule, here = sweeps[sweep].schedule, job.finished - self.before
        seconds = time.perf_counter() - self.began
        left = seconds / here * (job.all_bands - job.finished) if here > 0 else None
        rows = min((band + 1 - schedule.ahead) * schedule.height, self.tall)
        traffic = self.traffic.read, self.traffic.written
        told = StreamProgress(sweep, len(sweeps), rows, self.tall, job.finished, job.all_bands, *traffic, left)
        with callers_own():
            job.watch(told)
