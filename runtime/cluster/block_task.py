"""The tasks of a run on a cluster: one block of a sweep, and the joining of what blocks found."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import load
from brickrt.plan.device.device_spec import host_device
from brickrt.plan.device.machine import instruction_set
from brickrt.plan.stream.stream_plan import StreamPlan
from brickrt.runtime.cache.saved_plan import SavedPlan
from brickrt.runtime.cluster.block_spill import BlockSpill
from brickrt.runtime.cluster.blocks import Block
from brickrt.runtime.cluster.cluster_job import ClusterJob, cut_plan, input_types, job_header
from brickrt.runtime.cluster.owned_rows import NoRows, OwnedRows
from brickrt.runtime.cluster.record_folder import BlockRecord, RecordFolder
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.files.journal import stored_checksum
from brickrt.runtime.files.scratch import ScratchFolder
from brickrt.runtime.stream.boxes_io import CountedSource, Traffic
from brickrt.runtime.stream.resident import peak_bytes
from brickrt.runtime.stream.ring_memory import SweepMemory
from brickrt.runtime.stream.stream_planning import whole_graph
from brickrt.runtime.stream.stream_program import StreamProgram
from brickrt.runtime.stream.sweep_run import Files, SweepWork


@dataclass(frozen=True)
class CollectedRows:
    """The rows of collected tensors that the bands [wanted, end) of a sweep gave, behind one another."""

    sweep: int
    wanted: int
    end: int
    payload: bytes


Statistics = tuple[CollectedRows, ...]


def run_block(job: ClusterJob, block: Block, before: Statistics) -> Statistics:
    """Runs a block, if no record says that it is finished, and writes its rows; returns those of collected tensors.
    `before` are those of all earlier passes."""
    with _lock:
        return _runner(job).run(block, before)


def join_rows(*parts: Statistics) -> Statistics:
    """All rows of several blocks."""
    return tuple(one for part in parts for one in part)


def forget_job() -> None:
    """Gives up what this worker has of the last run: programs, memory, open files. A block that is under way, of a run
    whose coordinator died, is left alone: the worker's event loop must not wait for it."""
    if _lock.acquire(blocking=False):
        try:
            while _kept:
                _kept.popitem()[1].close()
        finally:
            _lock.release()


def end_job() -> int:
    """The same once a run has ended; the most bytes that this worker had in memory."""
    forget_job()
    return peak_bytes()


class _Runner:
    """A run as one worker has it: between blocks it keeps the program, which other blocks of a sweep run as well."""

    def __init__(self, job: ClusterJob) -> None:
        if instruction_set() != job.isa:
            raise BrickError(f"a worker has the instruction set {instruction_set()}, the run is for {job.isa}")
        self.job, self.folder = job, RecordFolder.beside(next(iter(job.outputs.values())).path)
        self.folder.check_run(job.run)
        source = load(job.model)
        self.sources = {name: one.open(name, source.inputs[name]) for name, one in job.inputs.items()}
        graph = whole_graph(source, input_types(self.sources), host_device())
        saved = SavedPlan.read(self.folder.plan, host_device(), "fp32")
        self.stream: StreamPlan = cut_plan(saved.plan(graph), job.rows, job.strips, job.spilled)
        self.constants = dict(self.stream.plan.graph.constants)
        here = job_header(graph, self.stream, self.sources, job.outputs)
        changed = [word for word, one in job.header.items() if here[word] != one]
        if changed:
            raise BrickError(f"{self.folder.path}: a worker found another {', '.join(changed)} than the coordinator")
        self.sinks = {name: one.open(graph.types[name], resume=True) for name, one in job.outputs.items()}
        self.scratch = ScratchFolder(Path(job.scratch), self.stream.spill_shapes(), keep=True)
        self.program: StreamProgram | None = None

    def close(self) -> None:
        """Closes the files."""
        self.program = None
        self.scratch.close()
        for source in self.sources.values():
            source.close()
        for sink in self.sinks.values():
            sink.abandon(keep=True)

    def run(self, block: Block, before: Statistics) -> Statistics:
        """See `run_block`."""
        self.folder.check_run(self.job.run)
        record = self.folder.record(block.number)
        if record is None or not self._is_as_written(record):
            self.folder.log(block.number, "begun")
            record = self._compute(block, before)
            self.folder.finish(block.number, record)
            self.folder.log(block.number, "finished")
        return (CollectedRows(block.sweep, block.wanted, block.end, record.payload),) if record.payload else ()

    def _is_as_written(self, record: BlockRecord) -> bool:
        """Whether outputs and spilled tensors still have what a block wrote."""
        try:
            return all(
                stored_checksum(sink, sink.sink.dtype, box.lo, box.extents) == box.checksum
                for box in record.boxes
                for sink in (self.sinks[box.output],)
            ) and all(
                self.scratch.files[box.output].checksum(box.lo, box.extents) == box.checksum for box in record.spilled
            )
        except BrickError:  # a chunk that cannot be decoded, or a file that is shorter, is written again
            return False

    def _compute(self, block: Block, before: Statistics) -> BlockRecord:
        program = self._program(block)
        sinks = {name: OwnedRows(name, self.sinks[name], rows, self._ask) for name, rows in block.owned.items()}
        if block.sweep == len(self.stream.sweeps):
            whole = [name for name in self.stream.plan.graph.outputs if name in self.stream.swept.resident]
            sinks = {name: OwnedRows(name, self.sinks[name], None, self._ask) for name in whole}
        traffic = Traffic()
        sources = {name: CountedSource(one, traffic) for name, one in self.sources.items()}
        spills = self._spills(block)
        files = Files(sources, {name: sinks.get(name, NoRows()) for name in self.sinks}, None, spills)
        program.run(files, partial(_restore, program.sweeps, before), block.sweep if block.end else None)
        for name in sinks:
            self.sinks[name].sync()
        spilled = [one for one in spills.values() if one.boxes]
        for one in spilled:
            one.file.sync()
        payload = _payload(program.sweeps[block.sweep], block) if block.end else b""
        boxes = (tuple(box for one in written for box in one.boxes) for written in (sinks.values(), spilled))
        return BlockRecord(next(boxes), payload, traffic.read, next(boxes))

    def _spills(self, block: Block) -> dict[str, BlockSpill]:
        """The files of spilled tensors, of which a block writes the rows that its bands compute."""
        schedule = self.stream.sweeps[block.sweep].schedule if block.end else None
        written = schedule.sinks if schedule is not None else ()
        return {
            name: BlockSpill(name, file, schedule if name in written else None, block, self._ask)
            for name, file in self.scratch.files.items()
        }

    def _ask(self) -> None:
        self.folder.check_run(self.job.run)

    def _program(self, block: Block) -> StreamProgram:
        """The program of a block: the one that is there, if it has all of its bands."""
        work = []
        if block.end:
            wanted = block.wanted if block.wanted > self.stream.sweeps[block.sweep].schedule.ahead else 0
            work = [SweepWork(block.sweep, self.stream.bands(block.sweep, wanted, block.reach))]
        if self.program is None or not self.program.take(work):
            self.program = None  # its memory first
            isa = host_isa(self.stream.plan.device)
            self.program = StreamProgram(self.stream, isa, self.job.threads, self.constants, work, held=self.job.held)
        return self.program


def _collected(memory: SweepMemory, wanted: int, end: int) -> list[np.ndarray]:
    """The rows that bands write of the collected tensors of a sweep."""
    found = []
    for name in memory.schedule.targets:
        if memory.is_collected(name):
            rows = memory.schedule.rows[name]
            found.append(memory.planes(name)[:, int(rows.lo[wanted]) : int(rows.hi[end - 1])])
    return found


def _payload(memory: SweepMemory, block: Block) -> bytes:
    return b"".join(rows.tobytes() for rows in _collected(memory, block.wanted, block.end))


def _restore(sweeps: list[SweepMemory], before: Statistics, number: int) -> None:
    """Puts rows of the collected tensors of a sweep into memory."""
    for part in (one for one in before if one.sweep == number):
        at = 0
        for rows in _collected(sweeps[number], part.wanted, part.end):
            rows[...] = np.frombuffer(part.payload, np.uint8, rows.size, at).reshape(rows.shape)
            at += rows.size


_kept: dict[str, _Runner] = {}  # the last run's, by its number
_lock = threading.Lock()  # one block at a time, whatever resources the worker says it has


def _runner(job: ClusterJob) -> _Runner:
    if job.run not in _kept:
        while _kept:
            _kept.popitem()[1].close()
        _kept[job.run] = _Runner(job)
    return _kept[job.run]
