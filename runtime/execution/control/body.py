"""A subgraph of a node as programs, one for each set of shapes of its inputs, and its rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from brickrt.graph.allowance import allowance
from brickrt.graph.builder import OnnxNode
from brickrt.graph.host.run_host_node import outer_names
from brickrt.graph.specialize.body_stage import passed_through
from brickrt.graph.specialize.stages import Stage
from brickrt.runtime.cpu.memory import output_array
from brickrt.runtime.execution.host_node_run import HostNodeRun
from brickrt.runtime.execution.kept_programs import KeptPrograms
from brickrt.runtime.execution.report import StageRun
from brickrt.runtime.execution.stage_cache import CompiledStage, Prepare, StageCache
from brickrt.runtime.program_protocol import Counts

Values = dict[str, Any]


class Body:
    """A subgraph with the programs that were made of it. `stays` are its outputs that are inputs as they are."""

    def __init__(self, graph: onnx.GraphProto, stage: Stage, cache: StageCache) -> None:
        self.graph, self.cache = graph, cache
        self.inputs = tuple(v.name for v in graph.input)
        self.outputs = tuple(v.name for v in graph.output)
        self.captured = tuple(name for name in outer_names(graph) if name in stage.inputs)
        self.stays = passed_through(graph)


@dataclass(frozen=True, eq=False)
class Rounds:
    """How rounds of bodies run in one call: `prepare` compiles, and `kept` counts what it makes; `watch` is told what
    is under way, `ran` counts what each compiled stage took, by its number as an object; `control` gives the outputs
    of a node on the host. `used` are the caches whose programs must stay until `ended`."""

    prepare: Prepare
    kept: KeptPrograms
    watch: HostNodeRun
    ran: dict[int, StageRun]
    control: Callable[[OnnxNode, Stage, CompiledStage, Values], list[Any]]
    used: set[StageCache] = field(default_factory=set)

    def ended(self) -> None:
        """Lets programs go that were given up meanwhile."""
        while self.used:
            self.used.pop().leave()

    def run(self, body: Body, values: Values, slots: Mapping[str, np.ndarray]) -> None:
        """Computes a body's outputs, and adds them to `values`, which have its inputs; those of `slots` are written
        there where a program computes them."""
        allowed = allowance()
        held = allowed.held if allowed is not None else 0
        cache: StageCache | None = body.cache
        while cache is not None:
            compiled = cache.again(values)
            if compiled is None:
                compiled = self._found(cache, values)
            if compiled.program is not None:
                self._program(compiled, values, slots)
            special = compiled.specialized
            values.update(special.known)
            for name, other in special.same.items():
                values[name] = values[other]
            for node in special.host_nodes:
                self._host(node, cache.stage, compiled, values)
            cache = compiled.rest
        if allowed is not None:
            allowed.held = held

    def _found(self, cache: StageCache, values: Values) -> CompiledStage:
        if cache not in self.used:
            self.used.add(cache)
            cache.use()
        with self.watch.not_counting():
            compiled, spent = cache.get(self.prepare, values)
        self.ran.setdefault(id(compiled), StageRun(compiled)).compile_ms += spent
        return compiled

    def _program(self, compiled: CompiledStage, values: Values, slots: Mapping[str, np.ndarray]) -> None:
        program, (names, made) = compiled.program, compiled.io_types
        assert program is not None
        inputs, outputs = [], []
        for name in names:
            value = values[name]
            inputs.append(value if value.flags.c_contiguous else np.asarray(value, order="C"))
        for name, shape, dtype in made:
            slot = slots.get(name)
            if slot is None or slot.shape != shape or slot.dtype != dtype:
                slot = output_array(shape, dtype)
            outputs.append(slot)
        started = time.perf_counter()
        self.watch.program = program
        counts = program.run(inputs, outputs)
        self.watch.program = None
        ran = self.ran.get(id(compiled)) or self.ran.setdefault(id(compiled), StageRun(compiled))
        ran.run_ms += (time.perf_counter() - started) * 1e3
        ran.counts = Counts(*map(int.__add__, ran.counts, counts))
        for (name, _, _), value in zip(made, outputs, strict=True):
            values[name] = value

    def _host(self, node: OnnxNode, stage: Stage, compiled: CompiledStage, values: Values) -> None:
        started = time.perf_counter()
        results = self.control(node, stage, compiled, values)
        ran = self.ran.get(id(compiled)) or self.ran.setdefault(id(compiled), StageRun(compiled))
        spent = (time.perf_counter() - started) * 1e3
        ran.host_nodes[node.name] = ran.host_nodes.get(node.name, 0.0) + spent
        for name, value in zip(node.outputs, results):
            if name:
                values[name] = value
