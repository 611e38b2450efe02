"""A compiled file behind `Runtime`, as if it were a model: its only stage has its program already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from brickrt.graph.errors import BrickError
from brickrt.graph.ir import Graph
from brickrt.graph.onnx_import.source import Model, SourceGraph, load
from brickrt.graph.specialize.stages import Specialized, Stage
from brickrt.ops.types import TensorType
from brickrt.plan.device.device_spec import host_device
from brickrt.plan.plan import Plan
from brickrt.runtime.compiled.compiled_file import OpenedFile, is_compiled
from brickrt.runtime.compiled.compiled_model import CompiledModel
from brickrt.runtime.engines import planner
from brickrt.runtime.execution.stage_cache import CompiledStage
from brickrt.runtime.lowering.task_graph import TaskGraph
from brickrt.runtime.pipeline import NOTHING, Pipeline
from brickrt.runtime.program_protocol import Counts

UNASKED = "generic"
"""The instruction set that the device of a compiled file is said to have: LLVM, which could tell the host's, is not
loaded for a file whose code was checked against the processor's own flags."""


@dataclass(frozen=True, eq=False)
class CompiledSource(SourceGraph):
    """What a compiled file says of its model: inputs and outputs, and no nodes."""

    path: Path = Path()


class CompiledFileProgram:
    """The program of a compiled file. Of its tasks only the number and what they wait for is known."""

    def __init__(self, model: CompiledModel) -> None:
        self._model, self._program, self.threads = model, model.program, model.threads
        self.notes: Mapping[str, str] = {}
        self.tasks = _tasks(model)

    @property
    def constant_bytes(self) -> int:
        """Memory of the packed constants."""
        return self._program.constant_bytes

    @property
    def working_bytes(self) -> int:
        """Memory that the program holds besides."""
        return self._program.working_bytes

    @property
    def held(self) -> Mapping[int, int]:
        """See `Program`."""
        return self._program.held

    def run(self, inputs: Any, outputs: Any, events: list[np.ndarray] | None = None) -> Counts:
        """See `Program`."""
        counts = self._program.run(inputs, outputs, events)
        self._model.ran()
        return counts

    def cancel(self) -> None:
        """See `Program`."""
        self._program.cancel()


@dataclass(frozen=True)
class CompiledPipeline(Pipeline):
    """Gives the program of a file for its model's only stage."""

    path: Path = Path()

    def compiled(
        self, stage: Stage, types: Mapping[str, TensorType], values: Mapping[str, np.ndarray]
    ) -> Specialized | CompiledStage:
        """The stage, whose program is the file's."""
        program = CompiledFileProgram(CompiledModel(self.path, threads=self.threads))
        return CompiledStage(Specialized(NOTHING), program.tasks.plan, program, None)


def model_source(model: SourceGraph | Model) -> SourceGraph:
    """What was loaded already, what a compiled file says, or a model that is imported now. Raises BrickError."""
    if isinstance(model, SourceGraph):
        return model
    if not isinstance(model, str | Path) or not is_compiled(model):
        return load(model)
    path = Path(model)
    with OpenedFile(path) as opened:
        header = opened.header
    proto = onnx.ModelProto(producer_name="brickrt")
    proto.graph.name = header.name
    infos = [{name: record.info for name, record in records.items()} for records in (header.inputs, header.outputs)]
    size = path.stat().st_size
    return CompiledSource(header.name, infos[0], {}, infos[1], {}, (), {}, proto, size, path)


def compiled_pipeline(source: CompiledSource, threads: int, asked: Mapping[str, Any]) -> Pipeline:
    """How a compiled file runs. `asked` are options that differ from their defaults: all was settled when the file was
    made, and BrickError says so."""
    for name, value in asked.items():
        chosen = f"{name} {value!r}" if isinstance(value, str | int) else name
        raise BrickError(f"{source.path}: is compiled, for the CPU: {chosen} cannot be chosen now")
    return CompiledPipeline(replace(planner(host_device(UNASKED)), name="cpu"), threads=threads, path=source.path)


def _tasks(model: CompiledModel) -> TaskGraph:
    """The tasks, of a plan whose nodes are not known."""
    header, tables = model.header, model.program.tables
    records = {**header.inputs, **header.outputs}
    types = {name: TensorType(record.shape, np.dtype(record.dtype)) for name, record in records.items()}
    graph = Graph((), types, {}, header.reads, header.writes)
    count = len(tables.dep_offsets) - 1
    return TaskGraph(Plan(graph, {}, host_device(UNASKED)), tables.dep_offsets, tables.deps, np.zeros(count, np.int64))
