"""The six steps by which a model runs, in the order of the README's table.

    import      a path, bytes or a ModelProto  → SourceGraph      `load`
    specialize  + types of the inputs          → Graph            `Pipeline.specialize`
    plan        + device and options           → Plan             `Pipeline.plan`
    lower                                      → TaskGraph        `Pipeline.lower`
    compile     + kernels                      → Program          `Pipeline.compile`
    execute     + inputs                       → outputs, Stats   `Execution.run_stage`

A model with nodes that run on the host has several parts, which go through specialize … execute one after the other:
what a later part needs to know, an earlier one computes.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from brickrt.graph.allowance import allowing, given_by
from brickrt.graph.errors import BrickError, callers_own, last_resort
from brickrt.graph.host.helpers import helped
from brickrt.graph.ir import Graph
from brickrt.graph.onnx_import.check_inputs import check_inputs
from brickrt.graph.onnx_import.source import Model, SourceGraph, load
from brickrt.graph.specialize.stages import Specialized, Stage, first_stage, with_deciding_inputs
from brickrt.graph.time_budget import preparing
from brickrt.graph.uncollected import uncollected
from brickrt.ops.types import TensorType
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import Plan
from brickrt.runtime.analysis.memory_projection import check_definitions, check_fits, check_io_sizes, check_work
from brickrt.runtime.engines import Engine
from brickrt.runtime.execution.execution import Bodies, Execution
from brickrt.runtime.execution.stage_cache import CompiledStage, StageCache
from brickrt.runtime.lowering.task_graph import TaskGraph
from brickrt.runtime.program_protocol import Program
from brickrt.runtime.progress import Progress

if TYPE_CHECKING:
    from brickrt.runtime.cache.saved_plan import SavedPlan

# Builders, passes, the planner and what lowers plans are imported where they work: a compiled file needs none of them.
LOG = logging.getLogger("brickrt")
NOTHING = Graph((), {})
STEPS = (
    "brickrt.graph.specialize.specialize",
    "brickrt.graph.passes.rewrite",
    "brickrt.graph.passes.halves.wide_tensors",
    "brickrt.plan.assign_layouts",
    "brickrt.plan.merging.split_moments",
    "brickrt.runtime.lowering.lower",
)
PLANNING_CODE = "brickrt.runtime.cache.plan_cache.planning_code"
KERNELS_CODE = "brickrt.runtime.cpu.compile.kernel_digest.code_digest"
PLANNED_WHILE_RUNNING = "nodes of the model are planned only when values before them are known"


def import_steps(engine: Engine) -> Engine:
    """Imports what compiling a model for an engine takes, and returns the engine. This takes longer than to plan a
    network: done before, it does not make the first call slower than those with other shapes."""
    on_cpu = engine.spec.kind == "cpu" and engine.name in ("cpu", "planner")  # the reference does without LLVM
    for name in (*STEPS, *(["brickrt.runtime.cpu.program"] if on_cpu else [])):
        import_module(name)
    for name in (PLANNING_CODE, *([KERNELS_CODE] if on_cpu else [])):  # digests of sources, which caches go by
        module, _, function = name.rpartition(".")
        getattr(import_module(module), function)()
    return engine


@dataclass(frozen=True)
class Pipeline:
    """How models run: on which engine, by which options, with how many threads, by a `saved` plan if there is one.
    `Runtime` adds what is kept."""

    engine: Engine
    options: PlanOptions = field(default_factory=PlanOptions)
    threads: int = 1
    progress: Progress | None = None
    saved: SavedPlan | None = None

    def __post_init__(self) -> None:
        if self.progress is not None and not callable(self.progress):
            raise BrickError(f"progress is a {type(self.progress).__name__}: give a function")

    def run(self, model: SourceGraph | Model, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """A model's outputs by name, all six steps from the beginning. Raises BrickError."""
        source = model if isinstance(model, SourceGraph) else load(model)
        values = check_inputs(source, inputs)
        execution = self.execute(StageCache(with_deciding_inputs(first_stage(source, values))), Execution(values))
        return {name: execution.values[name] for name in source.outputs}

    def execute(self, first: StageCache, execution: Execution) -> Execution:
        """Runs a model's parts one after the other; those that the cache does not have are compiled."""
        stage: StageCache | None = first
        if self.engine.bodies:
            execution.bodies = Bodies(self.compiled, first.kept)
        arrays = [value for value in execution.values.values() if hasattr(value, "dtype")]
        given = sum(given_by(math.prod(a.shape), a.dtype.itemsize) for a in arrays)
        helpers = self.engine.helpers(self.threads) if self.engine.helpers and self.threads > 1 else None
        with allowing(first.stage.source.stored_bytes + given), helped(helpers):
            while stage is not None:
                compiled, compile_ms = stage.get(self.compiled, execution.values, self.engine.arrays)
                execution.run_stage(stage.stage, compiled, compile_ms)
                stage = compiled.rest
        return execution

    def compiled(
        self, stage: Stage, types: Mapping[str, TensorType], values: Mapping[str, np.ndarray]
    ) -> Specialized | CompiledStage:
        """A stage ready to run, or, where values of its inputs are needed first, the request for them."""
        with allowing(_given(stage, types)):
            return self._compiled(stage, types, values)

    def _compiled(
        self, stage: Stage, types: Mapping[str, TensorType], values: Mapping[str, np.ndarray]
    ) -> Specialized | CompiledStage:
        began = time.perf_counter()
        with preparing():
            special = self.specialize(stage, types, values)
            if special.need_values:
                return special
            if self.saved and special.rest:
                raise BrickError(f"{self.saved.path}: a plan that is saved cannot be run: {PLANNED_WHILE_RUNNING}")
            plan, constants, tasks = self.lowered(special.graph)
            special = replace(special, graph=NOTHING)  # the program alone has the constants now, and gives them up
        if tasks is not None:
            tasks = replace(tasks, open_sizes=stage.source.open_sizes)
        program = None if tasks is None else self.compile(tasks, constants)
        shapes = ", ".join(f"{name} {list(type.shape)}" for name, type in types.items())
        ms = (time.perf_counter() - began) * 1e3
        LOG.info("%s: %d subgraphs compiled for %s in %.0f ms", stage.source.name, len(plan.subgraphs), shapes, ms)
        return CompiledStage(special, plan, program, StageCache(special.rest) if special.rest else None)

    def lowered(self, graph: Graph) -> tuple[Plan, dict[str, np.ndarray], TaskGraph | None]:
        """The plan of a graph, without constants; these, for a program to own; and its tasks, None where there is
        nothing to compute."""
        check_work(graph)
        plan, constants = without_constants(self.plan(graph))
        return plan, constants, self.lower(plan) if plan.graph.nodes else None

    def specialize(
        self, stage: Stage, types: Mapping[str, TensorType], values: Mapping[str, np.ndarray]
    ) -> Specialized:
        """The stage as brick operators, for inputs of these types. Raises BrickError where an input is too large."""
        from brickrt.graph.specialize.specialize import specialize

        self._say("specialize", 0, 1)
        with preparing(), uncollected(), allowing(_given(stage, types)):
            spec = self.engine.spec
            special = specialize(stage, types, values, spec.integer_products, spec.cpu_operators)
            if not special.need_values:
                check_io_sizes(special.graph)
        return special

    def plan(self, graph: Graph, measured: bool = True) -> Plan:
        """The plan of a graph: the saved one, or one remembered from an earlier process, or a new one; as it was
        modelled where it may not be `measured`."""
        from brickrt.runtime.cache.plan_cache import remembered_plan

        self._say("plan", 0, 1)
        with last_resort(lambda: _doing("planning", graph)), preparing():
            graph = self.as_planned(graph)
            if self.saved:
                return self.saved.plan(graph)
            may_tune = measured and self.options.strategy == "auto" and self.options.rules == "model"
            tunes = self.engine.tune if may_tune else None
            tune = tunes(self.threads, self.compiling) if tunes else None
            return remembered_plan(graph, self.engine.spec, self.options, tune)

    def as_planned(self, graph: Graph) -> Graph:
        """A specialized graph in the precision that was asked for, on the CPU with the model's narrow weights; not
        fused where the rules say so."""
        graph = self._in_precision(graph)
        if self.options.rules != "unfused":
            return graph
        from brickrt.graph.passes.ablation.single_steps import single_steps

        return single_steps(graph)

    def _in_precision(self, graph: Graph) -> Graph:
        from brickrt.graph.passes.chains.gpu_graph import gpu_graph
        from brickrt.graph.passes.fuse import fuse_half_epilogues
        from brickrt.graph.passes.half_precision import to_half_precision
        from brickrt.graph.passes.half_weights import narrow_weights
        from brickrt.graph.passes.halves.wide_tensors import wide_tensors
        from brickrt.graph.passes.rewrite import rewritten

        spec, precision = self.engine.spec, self.options.precision
        if precision == "bf16" and not spec.gains_by_bfloat16:
            precision = "fp32"  # as fast, and more exact: nothing is rounded for nothing
        if spec.kind == "cpu" and spec.isa != "generic" and precision == "fp32":
            wide = graph if self.options.exact else wide_tensors(graph)
            fused = graph if wide is graph else rewritten(wide)
            return fuse_half_epilogues(narrow_weights(fused, graph))  # "generic" processors cannot widen float16
        if spec.kind == "cpu" or self.options.rules == "unfused":
            return to_half_precision(graph, precision, factors_only=spec.kind == "cpu")
        return gpu_graph(graph, precision)

    def lower(self, plan: Plan) -> TaskGraph:
        """The plan's brick tasks in the order in which they run."""
        from brickrt.runtime.lowering.lower import lower

        with last_resort(lambda: _doing("lowering", plan.graph)), preparing(), uncollected():
            return lower(plan)

    def compile(self, tasks: TaskGraph, constants: dict[str, np.ndarray]) -> Program:
        """The program of a task graph, which owns `constants`. Raises BrickError where memory is too small for it."""
        check_fits(tasks, self.threads)
        if self.engine.name == "reference":
            check_definitions(tasks)
        with last_resort(lambda: _doing("compiling", tasks.plan.graph)):
            return self.engine.build(tasks, constants, self.threads, self.compiling)

    def compiling(self, done: int, total: int) -> None:
        """Tells `progress` of kernels that are compiled."""
        self._say("compile kernels", done, total)

    def _say(self, what: str, done: int, total: int) -> None:
        LOG.debug("%s: %d of %d", what, done, total)
        if self.progress:
            with callers_own():
                self.progress(what, done, total)


def _given(stage: Stage, types: Mapping[str, TensorType]) -> int:
    """Bytes of a model and of inputs of these types."""
    return stage.source.stored_bytes + sum(given_by(t.size, t.dtype.itemsize) for t in types.values())


def _doing(what: str, graph: Graph) -> str:
    """A stage and the nodes it is at, for errors."""
    names = list(dict.fromkeys(name for node in graph.nodes for name in node.origin))
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{what} the nodes {', '.join(map(repr, names[:4]))}{more}"


def without_constants(plan: Plan) -> tuple[Plan, dict[str, np.ndarray]]:
    """The plan with constants of which only shapes and types are known, and the constants, for a program to own."""
    constants = dict(plan.graph.constants)
    known = {name: np.broadcast_to(np.zeros((), a.dtype), a.shape) for name, a in constants.items()}
    return replace(plan, graph=replace(plan.graph, constants=known)), constants
