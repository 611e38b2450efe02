"""A network on blended windows of an image, from file to file in a stated amount of memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError, callers_own, last_resort
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.ops.types import Shape, TensorType
from brickrt.plan.stream.stream_plan import AXIS
from brickrt.runtime.cache.plan_cache import model_digest
from brickrt.runtime.files.journal import Journal, journal_path
from brickrt.runtime.files.kept_outputs import MOST_COLUMNS, OutputLayout, kept_outputs, opened_sinks
from brickrt.runtime.files.model_inputs import AS_THEY_ARE, Pixels, source_of
from brickrt.runtime.files.tensors import TensorSink, TensorSource
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.program_protocol import Cancelled, Program
from brickrt.runtime.stream.boxes_io import CountedSink, CountedSource, Traffic
from brickrt.runtime.stream.resident import peak_bytes
from brickrt.runtime.stream.stream_files import named
from brickrt.runtime.stream.stream_report import StreamOptions, StreamProgress, Watch, check_options
from brickrt.runtime.windows.decision import NO_DECISION, Decision
from brickrt.runtime.windows.window_options import WindowOptions
from brickrt.runtime.windows.window_planning import BlendedOutput, input_of, of_any_size, plan_windows
from brickrt.runtime.windows.window_record import WindowRecord
from brickrt.runtime.windows.window_report import WindowReport
from brickrt.runtime.windows.window_run import WindowFiles, WindowRun


class WindowJob:
    """One model on one file. `planned` is known before anything is compiled."""

    def __init__(
        self,
        pipeline: Pipeline,
        source: SourceGraph,
        given: TensorSource,
        windows: WindowOptions,
        options: StreamOptions,
        decision: Decision = NO_DECISION,
        watch: Watch | None = None,
    ) -> None:
        """Plans. Raises BrickError where the network does not take such windows and where the limit is too low."""
        if pipeline.engine.spec.kind != "cpu":
            raise BrickError(f"device '{pipeline.engine.name}' runs no windows: use device cpu")
        self.pipeline, self.given, self.options, self.watch = pipeline, given, options, watch
        image = TensorType(given.shape, given.dtype)
        with last_resort(lambda: "planning windows"):
            asked = windows, decision, options.max_memory, given.buffer_bytes
            self.planned = plan_windows(pipeline, source, image, *asked)
        self.limit = self.planned.limit
        self.finished = 0  # windows, of all, whose results are kept
        self._running: list[WindowRun | Program] = []
        self._cancelled = False

    @property
    def all_windows(self) -> int:
        """Windows of all images."""
        return self.planned.windows

    def run(self, outputs: Mapping[str, str | Path]) -> WindowReport:
        """Writes the outputs to files. What is finished is kept, where the run ends early, for one that resumes. Raises
        BrickError for files that cannot be read or written, and Cancelled after `cancel`."""
        path = journal_path(next(iter(outputs.values())))
        opened = partial(self._sinks, outputs)
        with kept_outputs(opened, path, self._header, self.options.resume) as (sinks, journal):
            return self._run(journal, sinks)

    def _run(self, journal: Journal, sinks: Mapping[str, TensorSink]) -> WindowReport:
        began, planned, traffic = time.perf_counter(), self.planned, Traffic()
        record = WindowRecord(planned, journal, sinks)
        image, row = record.begin()
        program = self.pipeline.compile(planned.tasks, planned.constants)
        run, ready = WindowRun(planned, program), time.perf_counter()
        self._running = [run, program]
        if self._cancelled:
            raise Cancelled
        told = _WindowsDone(self, record, (image, row), traffic)
        counted = {name: CountedSink(sink, traffic) for name, sink in sinks.items()}
        files = WindowFiles(CountedSource(self.given, traffic), counted, told.written, told.computed)
        with last_resort(lambda: "running windows"):
            run.run(files, image, row)
        return WindowReport(
            options=planned.options,
            memory=planned.memory,
            limit=self.limit,
            peak=peak_bytes(),
            windows=told.done,
            all_windows=self.all_windows,
            plan_s=planned.plan_s,
            compile_s=ready - began,
            run_s=time.perf_counter() - ready,
            bytes_read=traffic.read,
            bytes_written=traffic.written,
            nonfinite=traffic.nonfinite,
            outputs={name: sink.name for name, sink in sinks.items()},
        )

    def cancel(self) -> None:
        """Ends the run under way, or the next; what it finished is kept."""
        self._cancelled = True
        for one in self._running:
            one.cancel()

    def _sinks(self, outputs: Mapping[str, str | Path]) -> dict[str, TensorSink]:
        layouts = {name: OutputLayout(one.written, AXIS, _chunks(one)) for name, one in self.planned.outputs.items()}
        return opened_sinks(layouts, outputs, self.given, self.options, self.planned.options.remark())

    def _header(self) -> dict[str, str]:
        """What a run that resumes must have in common with the one that was ended."""
        planned, plan = self.planned, self.planned.plan
        return {
            "model": model_digest(plan.graph, plan.device, plan.options, planned.constants),
            "input": self.given.identity(),
            "window": f"{planned.options} {planned.decision}",
            "instruction set": self.pipeline.engine.spec.isa,
            "output": f"{self.options.stored} {self.options.scale}",
        }


def _chunks(one: BlendedOutput) -> Shape:
    """Chunks of as many rows as a row of windows finishes."""
    shape, starts = one.written.shape, one.layout.starts[0]
    rows = starts[1] - starts[0] if len(starts) > 1 else shape[AXIS]
    return (*shape[:AXIS], max(1, rows), *(min(MOST_COLUMNS, extent) for extent in shape[AXIS + 1 :]))


class _WindowsDone:
    """Tells how far the run is."""

    def __init__(self, job: WindowJob, record: WindowRecord, begin: tuple[int, int], traffic: Traffic) -> None:
        self.job, self.record, self.traffic, self.began, self.done = job, record, traffic, time.perf_counter(), 0
        layout, (image, row) = job.planned.layout, begin
        self.across, rows = len(layout.places), layout.rows
        again = row - layout.first_for(row) if image < job.planned.shape[0] else 0
        self.left = job.all_windows - (image * rows + row - again) * self.across
        self.before = job.finished = job.all_windows - self.left

    def written(self, image: int, row: int, name: str, lo: Shape, made: np.ndarray) -> None:
        """Rows are in their file."""
        self.record.finish(image, row, name, lo, made)
        self.job.finished = self.before + self.done

    def computed(self, image: int, row: int, windows: int) -> None:
        """Some windows of a row have been computed."""
        job, layout = self.job, self.job.planned.layout
        self.done += windows
        if job.watch is None:
            return
        seconds = time.perf_counter() - self.began
        begin, end = (min(n - layout.front[0], layout.image[0]) for n in layout.finished(row))
        rows = max(0, begin if self.done % self.across else end)
        traffic = self.traffic.read, self.traffic.written
        left = seconds / self.done * (self.left - self.done)
        with callers_own():
            done, all_windows = self.before + self.done, job.all_windows
            job.watch(StreamProgress(0, 1, rows, layout.image[0], done, all_windows, *traffic, left))


@contextmanager
def opened_windows(
    pipeline: Pipeline,
    source: SourceGraph,
    inputs: Any,
    windows: WindowOptions,
    options: StreamOptions,
    decision: Decision = NO_DECISION,
    pixels: Pixels = AS_THEY_ARE,
    watch: Watch | None = None,
) -> Iterator[WindowJob]:
    """A job on a file or array, of any size, which is closed when this is left. Raises BrickError."""
    check_options(options)
    name, _ = input_of(source)
    given = source_of(of_any_size(source), name, named("inputs", inputs, [name])[name], pixels)
    try:
        job = WindowJob(pipeline, source, given, windows, options, decision, watch)
        given.copy_if_scattered()
        yield job
    finally:
        given.close()
