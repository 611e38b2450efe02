"""A model from files to files in a stated amount of memory: planned, refused or run, and resumed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from brickrt.graph.errors import BrickError, last_resort
from brickrt.graph.ir import Graph
from brickrt.graph.onnx_import.check_inputs import check_input_types
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.graph.room import available_bytes
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import first_stage
from brickrt.graph.time_budget import preparing
from brickrt.ops.types import TensorType
from brickrt.plan.plan import Plan
from brickrt.plan.stream.choose_bands import Candidate, MemoryLimit, choose_bands
from brickrt.plan.stream.stream_memory import StreamMemory
from brickrt.plan.stream.stream_plan import AXIS, StreamPlan, StreamPlanner
from brickrt.runtime.cache.plan_cache import plan_digest
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.files.journal import Journal, journal_path
from brickrt.runtime.files.tensors import TensorSink, TensorSource, as_file
from brickrt.runtime.lowering.arena import view_aliases
from brickrt.runtime.lowering.inplace_slices import find_inplace_slices
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.stream.recorder import StreamRecorder, left_to_do, restore_collected
from brickrt.runtime.stream.resident import peak_bytes, resident_bytes
from brickrt.runtime.stream.stream_program import StreamProgram
from brickrt.runtime.stream.sweep_run import Files, SweepWork

FREE_SHARE = 0.8  # of the memory that is free, which a run takes where no limit is given
COLUMNS = 1024  # of a chunk of an output


@dataclass(frozen=True)
class StreamOptions:
    """`max_memory` bytes that the process may have resident, 80 % of what is free where it is None. `stored` is the
    type of the files' elements, by default that of the outputs, which are multiplied with `scale` before. With
    `resume`, a run that was ended goes on."""

    max_memory: int | None = None
    stored: str | None = None
    scale: float | None = None
    resume: bool = False


@dataclass(frozen=True)
class StreamReport:
    """What a run in bounded memory did. `peak` is the most that was resident, `bands` how many ran of `all_bands`."""

    plan: StreamPlan
    memory: StreamMemory
    limit: int
    peak: int
    bands: int
    all_bands: int
    plan_s: float
    compile_s: float
    run_s: float
    outputs: dict[str, str] = field(default_factory=dict)


class StreamJob:
    """One model on one set of files. `candidate` is what was chosen, known before anything is lowered."""

    def __init__(
        self, pipeline: Pipeline, source: SourceGraph, inputs: Mapping[str, TensorSource], options: StreamOptions
    ) -> None:
        """Plans. Raises BrickError with the least memory that would do where the limit is below, and naming the node
        where a network is not run band by band."""
        began = time.perf_counter()
        self.pipeline, self.inputs, self.options = pipeline, dict(inputs), options
        types = {name: TensorType(one.shape, one.dtype) for name, one in inputs.items()}
        check_input_types(source, types)
        self.plan = pipeline.plan(_whole_graph(source, types))
        slices, views = find_inplace_slices(self.plan), view_aliases(self.plan)
        buffers = sum(one.buffer_bytes for one in inputs.values())
        runtime = resident_bytes()
        limit = options.max_memory or runtime + int(FREE_SHARE * available_bytes())
        asked = MemoryLimit(limit, pipeline.threads, runtime, buffers + _sink_buffers(self.plan))
        with last_resort(lambda: "planning bands"), preparing():
            planner = StreamPlanner.of(self.plan, slices, views)
            self.candidate: Candidate = choose_bands(planner, slices, asked)
        self.limit, self.plan_s = limit, time.perf_counter() - began

    @property
    def stream(self) -> StreamPlan:
        """The sweeps."""
        return self.candidate.plan

    def run(self, outputs: Mapping[str, str | Path]) -> StreamReport:
        """Writes the outputs to files. What is finished is kept, where the run ends early, for one that resumes."""
        sinks = self._sinks(outputs)
        try:
            path = journal_path(next(iter(outputs.values())))
            header = self._header()
            journal = Journal.resume(path, header) if self.options.resume else Journal.create(path, header)
        except BaseException:
            for sink in sinks.values():
                sink.abandon(keep=self.options.resume)
            raise
        try:
            report = self._run(journal, sinks)
        except BaseException:
            journal.close()
            for sink in sinks.values():
                sink.abandon(keep=True)
            raise
        for sink in sinks.values():
            sink.close()
        journal.remove()
        return report

    def _run(self, journal: Journal, sinks: Mapping[str, TensorSink]) -> StreamReport:
        began, plan, pipeline = time.perf_counter(), self.stream, self.pipeline
        work = left_to_do(plan, journal, sinks)
        total = sum(one.schedule.bands for one in plan.sweeps)
        left = _Countdown(pipeline, work, total)
        with last_resort(lambda: "compiling bands"):
            program = self._program(work)
        restore_collected(plan, journal, program.sweeps, work)
        ready = time.perf_counter()
        self.program = program
        program.run(Files(self.inputs, sinks, StreamRecorder(journal, sinks, left.tell)))
        ran = time.perf_counter()
        return StreamReport(
            plan=plan,
            memory=self.candidate.memory,
            limit=self.limit,
            peak=peak_bytes(),
            bands=program.bands,
            all_bands=total,
            plan_s=self.plan_s,
            compile_s=ready - began,
            run_s=ran - ready,
            outputs={name: sink.name for name, sink in sinks.items()},
        )

    def _program(self, work: list[SweepWork]) -> StreamProgram:
        isa, constants = host_isa(self.pipeline.engine.spec), self.plan.graph.constants
        return StreamProgram(self.stream, isa, self.pipeline.threads, constants, work, self.pipeline.compiling)

    def cancel(self) -> None:
        """Ends the run under way; what it finished is kept."""
        with suppress(AttributeError):  # it is not compiled yet
            self.program.cancel()

    def _sinks(self, outputs: Mapping[str, str | Path]) -> dict[str, TensorSink]:
        graph, options = self.plan.graph, self.options
        missing = [name for name in graph.outputs if name not in outputs]
        if missing or len(outputs) != len(graph.outputs):
            raise BrickError(f"the model's outputs are {', '.join(graph.outputs)}: give a file for each")
        like = next(iter(self.inputs.values()))
        sinks: dict[str, TensorSink] = {}
        try:
            for name in graph.outputs:
                kind = graph.types[name]
                sinks[name] = as_file(
                    outputs[name],
                    kind.shape,
                    kind.dtype,
                    stored=options.stored if kind.dtype.kind == "f" else None,
                    scale=options.scale if kind.dtype.kind == "f" else None,
                    axis=min(AXIS, kind.rank - 1),
                    resume=options.resume,
                    chunks=self._chunks(name),
                    like=like,
                )
        except BaseException:
            for sink in sinks.values():
                sink.abandon(keep=options.resume)
            raise
        return sinks

    def _chunks(self, name: str) -> tuple[int, ...]:
        """Chunks that bands and strips write whole."""
        shape = self.plan.graph.types[name].shape
        schedules = [one.schedule for one in self.stream.sweeps if name in one.schedule.rows]
        if not schedules:
            return shape
        rows = max(1, max(schedule.rows[name].fresh for schedule in schedules))
        widths = [schedule.across[name].extents[0].tolist() for schedule in schedules]
        behind = [min(COLUMNS, *(width[axis] for width in widths)) for axis in range(AXIS + 1, len(shape))]
        return (*shape[:AXIS], rows, *behind)

    def _header(self) -> dict[str, str]:
        """What a run that resumes must have in common with the one that was ended."""
        stream, spec = self.stream, self.pipeline.engine.spec
        cuts = f"{stream.rows} {stream.strips} {[unit.brick for unit in stream.units]}"
        return {
            "model": _model_digest(self.plan, spec.isa),
            "input": " ".join(f"{name}:{one.identity()}" for name, one in sorted(self.inputs.items())),
            "plan": hashlib.sha256(cuts.encode()).hexdigest()[:32],
            "instruction set": spec.isa,
            "output": f"{self.options.stored} {self.options.scale}",
        }


class _Countdown:
    """Tells how many bands are written."""

    def __init__(self, pipeline: Pipeline, work: list[SweepWork], total: int) -> None:
        self.pipeline, self.total = pipeline, total
        self.done = total - sum(one.bands.end - one.bands.wanted for one in work)

    def tell(self, sweep: int, band: int) -> None:
        """One more is."""
        self.done += 1
        if self.pipeline.progress is not None:
            self.pipeline.progress("stream", min(self.done, self.total), self.total)


def _whole_graph(source: SourceGraph, types: Mapping[str, TensorType]) -> Graph:
    """The model as one graph of brick operators. Raises BrickError where it is none."""
    with preparing():
        special = specialize(first_stage(source, frozenset(types)), types, {})
    if special.need_values:
        names = ", ".join(map(repr, sorted(special.need_values)))
        raise BrickError(f"shapes depend on the values of {names}: such a network is not run band by band")
    if special.rest or special.host_nodes:
        names = ", ".join(f"'{node.name}' ({node.op_type})" for node in special.host_nodes[:4])
        raise BrickError(f"nodes {names} run on the host: a network with them is not run band by band")
    if set(source.outputs) - set(special.graph.outputs):
        names = ", ".join(map(repr, sorted(set(source.outputs) - set(special.graph.outputs))))
        raise BrickError(f"outputs {names} are known before the run, or are others: leave them out of the model")
    return special.graph


def _sink_buffers(plan: Plan) -> int:
    """Bytes that writers may hold: a band's rows in another order and type, about."""
    outputs = [plan.graph.types[name] for name in plan.graph.outputs]
    return sum(2**24 + 256 * kind.nbytes // max(1, (*kind.shape, 1, 1, 1)[AXIS]) for kind in outputs)


def _model_digest(plan: Plan, isa: str) -> str:
    digest = hashlib.sha256(plan_digest(plan.graph, plan.device, plan.options).encode())
    for name, array in sorted(plan.graph.constants.items()):
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]
