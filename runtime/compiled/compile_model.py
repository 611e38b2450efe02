"""Compiles a model for inputs of given shapes into one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO

import numpy as np

from brickrt.graph.allowance import allowing
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import Model, SourceGraph, load
from brickrt.graph.specialize.stages import Specialized, first_stage
from brickrt.graph.time_budget import preparing
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.types import Shape, TensorType
from brickrt.plan.geometry.arena_packing import aligned
from brickrt.plan.options import PlanOptions, Precision, check_options
from brickrt.plan.plan import Plan
from brickrt.runtime.cache.saved_plan import plan_file_text
from brickrt.runtime.compiled.file_header import CodeRecord, CompiledHeader, TensorRecord, words_digest
from brickrt.runtime.compiled.object_files import LinkedCode, link
from brickrt.runtime.compiled.processor import machine
from brickrt.runtime.compiled.targets import Target, target_named
from brickrt.runtime.compiled.write_compiled import write_compiled
from brickrt.runtime.cpu.argument_table import ArgumentTable, SharedTables
from brickrt.runtime.cpu.compile.load import KernelLoader, module_image
from brickrt.runtime.cpu.engine_memory import PackedConstants
from brickrt.runtime.cpu.program import worker_tables
from brickrt.runtime.cpu.worker_program import WorkerTables
from brickrt.runtime.cpu.workers.compiled_mailbox import ANY_ISA
from brickrt.runtime.cpu.workers.mailbox import mailbox_module
from brickrt.runtime.cpu.workers.mailbox_words import FUNCTIONS
from brickrt.runtime.cpu.workers.worker_loop import worker_module
from brickrt.runtime.lowering.owned_constants import OwnedConstants
from brickrt.runtime.lowering.task_graph import TaskGraph
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.progress import KernelProgress, Progress
from brickrt.runtime.thread_count import thread_count
from brickrt.version import VERSION

WHOLE = "only models that run as one program are compiled into a file: run the .onnx file"


@dataclass(frozen=True)
class CompiledContent:
    """What a compiled file is to hold."""

    header: CompiledHeader
    sections: Mapping[str, Sequence[np.ndarray]]

    def write(self, f: IO[bytes]) -> None:
        """Writes the file. Raises OSError where it cannot be written."""
        write_compiled(f, self.header, self.sections)

    @property
    def nbytes(self) -> int:
        """Bytes of code, tables and constants."""
        return sum(array.nbytes for arrays in self.sections.values() for array in arrays)


@dataclass(frozen=True)
class _CompiledParts:
    tables: WorkerTables
    code: LinkedCode
    kernels: tuple[str, ...]
    constants: list[np.ndarray]
    scratch_bytes: int


def compile_model(
    model: SourceGraph | Model,
    shapes: Mapping[str, Shape] | None = None,
    *,
    target: str = "host",
    exact: bool = False,
    precision: Precision = "fp32",
    progress: Progress | None = None,
) -> CompiledContent:
    """Compiles a model for inputs of these shapes, by name, where the model leaves them open.

    `target` is host (this processor and those that have all it has), avx512, avx2 or generic; `exact` and
    `precision` as of `Runtime`.
    Raises BrickError where that cannot be: a model whose nodes run on the host or in several parts among them.
    """
    source = model if isinstance(model, SourceGraph) else load(model)
    chosen = target_named(target)
    try:
        options = PlanOptions(exact=exact, precision=precision)
    except ValueError as e:
        raise BrickError(str(e)) from None
    check_options(chosen.engine.spec, precision)
    pipeline = Pipeline(chosen.engine, options, thread_count(None), progress)
    with allowing(source.stored_bytes), preparing():
        special = pipeline.specialize(first_stage(source), _types(source, shapes or {}), {})
        _check_whole(source, special)
        graph = pipeline.as_planned(special.graph)
        plan, constants, tasks = pipeline.lowered(special.graph)
    if tasks is None:
        raise BrickError(f"model '{source.name}' computes nothing from its inputs: {WHOLE}")
    values = OwnedConstants(tasks, constants)
    parts = _compiled(tasks, values, chosen.isa, pipeline.compiling)
    return CompiledContent(_header(source, plan, tasks, parts, chosen, plan_file_text(graph, plan)), _sections(parts))


def _types(source: SourceGraph, shapes: Mapping[str, Shape]) -> dict[str, TensorType]:
    """Types of the inputs. Raises BrickError where a shape is still open, or not one of numbers."""
    found = {}
    for name, info in source.inputs.items():
        shape = shapes.get(name, info.shape)
        if info.dtype is None or info.dtype.kind not in "biuf":
            raise BrickError(f"input '{name}' is no tensor of numbers: {WHOLE}")
        extents = tuple(extent for extent in shape or () if isinstance(extent, int))
        if shape is None or len(extents) < len(shape):
            raise BrickError(f"input '{name}' has open dimensions: give --shape {name}=1,3,224,224, or other numbers")
        found[name] = TensorType(extents, info.dtype)
    return found


def _check_whole(source: SourceGraph, special: Specialized) -> None:
    """Raises BrickError, naming what is in the way, for a model that is more than one program."""
    if special.need_values:
        names = ", ".join(f"'{name}'" for name in sorted(special.need_values))
        raise BrickError(f"the values of input {names} decide shapes inside the model: {WHOLE}")
    for node in special.host_nodes:
        raise BrickError(f"node '{node.name}' ({node.op_type}) runs on the host: {WHOLE}")
    if special.rest:
        node = special.rest.nodes[0]
        raise BrickError(f"node '{node.name}' ({node.op_type}) is planned once values before it are known: {WHOLE}")
    for name in source.outputs:
        if name not in special.graph.outputs:
            raise BrickError(f"output '{name}' is known, or another tensor's, without computing: {WHOLE}")


def _compiled(tasks: TaskGraph, values: OwnedConstants, isa: Isa, progress: KernelProgress) -> _CompiledParts:
    """Kernels as one image of code, tables and packed constants."""
    with KernelLoader() as loader, ThreadPoolExecutor(thread_count(None)) as packers:
        shared = SharedTables(loader.want, packers, values, PackedConstants())
        table = ArgumentTable(tasks, isa, shared)
        table.add_all()
        images = loader.images(progress)
        constants = [packed.result() for packed in shared.constants.values()]
    own = module_image("worker", worker_module, isa), module_image("mailbox", mailbox_module, ANY_ISA)
    code = link((*own, *images.values()))
    return _CompiledParts(
        worker_tables(table), code, tuple(loader.symbols), constants, tasks.scratch_bytes + table.workspace
    )


def _header(
    source: SourceGraph, plan: Plan, tasks: TaskGraph, parts: _CompiledParts, target: Target, text: str
) -> CompiledHeader:
    types, symbols = plan.graph.types, parts.code.symbols
    functions = {name: symbols[name] for name in ("worker", *FUNCTIONS)}
    inputs = {name: info.dtype for name, info in source.inputs.items()}
    return CompiledHeader(
        brickrt=VERSION,
        words=words_digest(),
        target=target.name,
        machine=machine(),
        needs=tuple(sorted(target.needs)),
        name=source.name,
        inputs={name: _record(types[name]) for name in inputs},
        outputs={name: _record(types[name]) for name in source.outputs},
        reads=tuple(plan.graph.inputs),
        writes=tuple(plan.graph.outputs),
        arena_bytes=tasks.arena_bytes,
        scratch_bytes=parts.scratch_bytes,
        constants=tuple(array.nbytes for array in parts.constants),
        code=CodeRecord(tuple(symbols[name] for name in parts.kernels), functions, parts.code.imports),
        plan=text,
    )


def _record(kind: TensorType) -> TensorRecord:
    return TensorRecord(kind.dtype.name, tuple(kind.shape))


def _sections(parts: _CompiledParts) -> dict[str, list[np.ndarray]]:
    """What the file holds, by name; constants begin at multiples of the widest vector."""
    tables, code = parts.tables, parts.code
    constants = list[np.ndarray]()
    for array in parts.constants:
        constants += [array, np.zeros(aligned(array.nbytes) - array.nbytes, np.uint8)]
    return {
        "first_step": [tables.first_step],
        "step_at": [tables.step_at],
        "records": [tables.records],
        "dep_offsets": [tables.dep_offsets],
        "deps": [tables.deps],
        "places": [tables.places],
        "code": [np.frombuffer(bytes(code.code), np.uint8)],
        "rebase": [np.array(code.rebase, np.uint32)],
        "constants": constants,
    }
