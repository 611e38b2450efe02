"""Stages of a model, compiled per set of input shapes, least recently used out first."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from brickrt.graph.ir import Graph
from brickrt.graph.passes.half_precision import to_half_precision
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import Specialized, Stage
from brickrt.ops.types import TensorType
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import Plan
from brickrt.runtime.analysis.memory_projection import check_ends, check_fits
from brickrt.runtime.arrays import on_device
from brickrt.runtime.cache.plan_cache import Tune, remembered_plan
from brickrt.runtime.lowering.lower import lower
from brickrt.runtime.program_protocol import Program
from brickrt.runtime.session.engines import Engine

Progress = Callable[[str, int, int], None]  # (what, done, of how many)
KEPT = 8  # programs per stage


@dataclass(frozen=True, eq=False)
class CompiledStage:
    """A stage for given shapes: its program (None where nothing is left to compute), host nodes, and what follows."""

    specialized: Specialized
    plan: Plan
    program: Program | None
    rest: StageCache | None


@dataclass(frozen=True)
class Compiler:
    """How stages become programs."""

    engine: Engine
    options: PlanOptions
    threads: int
    progress: Progress | None = None

    def compile(
        self, stage: Stage, types: Mapping[str, TensorType], values: Mapping[str, np.ndarray]
    ) -> Specialized | CompiledStage:
        """The compiled stage, or, where values of its inputs are needed first, the request for them."""
        self._say("specialize", 0, 1)
        special = specialize(stage, types, values)
        if special.need_values:
            return special
        check_ends(special.graph)
        self._say("plan", 0, 1)
        # no name is kept for the graph: building releases its weights one by one
        plan = remembered_plan(
            to_half_precision(special.graph, self.options.precision), self.engine.spec, self.options, self._tune()
        )
        special = replace(special, graph=Graph((), {}))  # the plan has its own, whose weights the engine may release
        program = None
        if plan.graph.nodes:
            tasks = lower(plan)
            check_fits(tasks, self.threads)
            program = self.engine.build(tasks, self.threads, self._compiling)
        rest = StageCache(special.rest) if special.rest is not None else None
        return CompiledStage(special, plan, program, rest)

    def host(self, value: Any) -> Any:
        """A value that decides what is compiled, where Python can look at it."""
        return self.engine.arrays.host(value, None) if self.engine.arrays and on_device(value) else value

    def _tune(self) -> Tune | None:
        """What improves plans that nothing was asked of, on engines that measure."""
        return self.engine.tune(self._compiling) if self.engine.tune and self.options.strategy == "auto" else None

    def _compiling(self, done: int, total: int) -> None:
        self._say("compile kernels", done, total)

    def _say(self, what: str, done: int, total: int) -> None:
        if self.progress:
            self.progress(what, done, total)


class StageCache:
    """Programs of one stage. `value_names` are the inputs whose values, not only shapes, decide the program."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.value_names = set(stage.value_inputs)
        self._compiled: OrderedDict[tuple, CompiledStage] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, compiler: Compiler, values: Mapping[str, Any]) -> tuple[CompiledStage, float]:
        """The program for these inputs and the milliseconds spent on compiling, 0 where it was there."""
        with self._lock:
            started = time.perf_counter()
            found = self._compiled.get(self._key(compiler, values))
            if found is not None:
                self._compiled.move_to_end(self._key(compiler, values))
                return found, 0.0
            made = self._compile(compiler, values)
            self._compiled[self._key(compiler, values)] = made
            while len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
            return made, (time.perf_counter() - started) * 1e3

    def _compile(self, compiler: Compiler, values: Mapping[str, Any]) -> CompiledStage:
        arrays = {name: values[name] for name in self.stage.inputs if _is_tensor(values.get(name))}
        types = {name: TensorType(array.shape, array.dtype) for name, array in arrays.items()}
        while True:
            bound = {name: compiler.host(values[name]) for name in self.value_names if name in values}
            made = compiler.compile(self.stage, types, bound)
            if isinstance(made, CompiledStage):
                return made
            self.value_names |= made.need_values

    def _key(self, compiler: Compiler, values: Mapping[str, Any]) -> tuple:
        given = ((name, values.get(name)) for name in self.stage.inputs)
        return tuple(
            _identity(compiler.host(v) if name in self.value_names else v, name in self.value_names)
            for name, v in given
        )


def _is_tensor(value: Any) -> bool:
    return on_device(value) or (isinstance(value, np.ndarray) and value.dtype.kind not in "OUS")


def _identity(value: Any, with_content: bool) -> Any:
    if not isinstance(value, np.ndarray) and not on_device(value):
        return type(value).__name__
    content = value.tobytes() if with_content and _is_tensor(value) else b""
    return value.shape, value.dtype.str, content
