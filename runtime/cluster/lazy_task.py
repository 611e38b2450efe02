"""The tasks of a lazy array: one band of one strip, computed of the chunks that its region lies in."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.ops.types import Shape, TensorType
from brickrt.plan.device.device_spec import host_device
from brickrt.runtime.cache.saved_plan import SavedPlan
from brickrt.runtime.cluster.cluster_job import cut_plan
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.stream.stream_planning import whole_graph
from brickrt.runtime.stream.stream_program import StreamProgram
from brickrt.runtime.stream.sweep_run import Files, SweepWork
from brickrt.runtime.thread_count import thread_count


@dataclass(frozen=True)
class LazyJob:
    """A model on an array of one shape: its plan as `brickrt plan --output` writes it, and how that is cut. `digest`
    covers all of it, the weights too."""

    digest: str
    source: SourceGraph
    input: str
    kind: TensorType
    plan: str
    rows: int
    strips: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """A chunk of the input, and where it begins."""

    lo: Shape
    array: np.ndarray


class _ChunkSource:
    """Reads chunks of an array; where there is none, nothing that is wanted depends on the values, which are 0."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces

    def read(self, lo: Shape, out: np.ndarray) -> None:
        """See `Source`."""
        out[...] = 0
        for piece in self.pieces:
            begin = [max(a, b) for a, b in zip(lo, piece.lo)]
            end = [min(a + n, b + m) for a, n, b, m in zip(lo, out.shape, piece.lo, piece.array.shape)]
            if all(a < b for a, b in zip(begin, end)):
                here = tuple(slice(a - o, b - o) for a, b, o in zip(begin, end, lo))
                there = tuple(slice(a - o, b - o) for a, b, o in zip(begin, end, piece.lo))
                out[here] = np.asarray(piece.array[there])


class _OneChunk:
    """Keeps what a band writes."""

    array: np.ndarray

    def write(self, lo: Shape, array: np.ndarray) -> None:
        """See `Sink`."""
        self.array = array.copy()


class _LazyRunner:
    """A job as one process has it; the program is kept for other chunks."""

    def __init__(self, job: LazyJob) -> None:
        graph = whole_graph(job.source, {job.input: job.kind}, host_device())
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "plan.json")
            path.write_text(job.plan)
            saved = SavedPlan.read(path, host_device(), "fp32")
            plan = saved.plan(graph)
        self.stream = cut_plan(plan, job.rows, job.strips)
        self.input, self.output = job.input, graph.outputs[0]
        self.program: StreamProgram | None = None

    def run(self, sweep: int, band: int, pieces: Sequence[Piece]) -> np.ndarray:
        """A band of a sweep."""
        wanted = band if band > self.stream.sweeps[sweep].schedule.ahead else 0
        work = [SweepWork(sweep, self.stream.bands(sweep, wanted, band + 1))]
        if self.program is None or not self.program.take(work):
            self.program = None  # its memory first
            plan = self.stream.plan
            isa, constants = host_isa(plan.device), dict(plan.graph.constants)
            self.program = StreamProgram(self.stream, isa, _threads(), constants, work)
        chunk = _OneChunk()
        self.program.run(Files({self.input: _ChunkSource(pieces)}, {self.output: chunk}))
        return chunk.array


def _threads() -> int:
    """As many as a worker of Dask has, or one per core where there is none."""
    worker = sys.modules.get("distributed.worker")
    try:
        return thread_count(None) if worker is None else worker.get_worker().state.nthreads
    except ValueError:  # this process is no worker
        return thread_count(None)


_kept: dict[str, _LazyRunner] = {}  # the last job's, by its digest
_lock = threading.Lock()  # a program runs one chunk at a time, on all threads


def run_chunk(job: LazyJob, sweep: int, band: int, pieces: Any) -> np.ndarray:
    """Computes a chunk of the result of the pieces that its region lies in."""
    with _lock:
        if job.digest not in _kept:
            _kept.clear()
            _kept[job.digest] = _LazyRunner(job)
        return _kept[job.digest].run(sweep, band, pieces)
