"""`Runtime`: a model on a device. It specializes, plans, lowers and compiles on demand, and runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from brickrt.graph.errors import BrickError
from brickrt.graph.host import run_node
from brickrt.graph.inputs import check_inputs
from brickrt.graph.source import SourceGraph, load
from brickrt.graph.specialize import first_stage
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import Plan
from brickrt.runtime import events
from brickrt.runtime.compiled import Compiled, Compiler, Progress, StageCache
from brickrt.runtime.devices import choose_engine
from brickrt.runtime.engine import Counts, Program
from brickrt.runtime.host_threads import thread_count
from brickrt.runtime.memory import project
from brickrt.runtime.stats import Stats
from brickrt.runtime.traffic import locality


@dataclass(frozen=True, eq=False)
class Report:
    """What one call ran: plans of its stages in order, nodes that ran on the host and why, and what was measured."""

    plans: tuple[Plan, ...]
    fallback: dict[str, str]
    measured: Stats
    programs: tuple[Program, ...] = ()

    @property
    def projected_bytes(self) -> int:
        """Memory that the plans of all stages need, as known before they ran."""
        return sum(project(program.tasks, program.threads).total for program in self.programs)

    @cached_property
    def stats(self) -> Stats:
        """The measured figures, with the modelled bytes per memory level."""
        levels = [Stats(level_bytes={k: v.moved for k, v in locality(p.tasks).levels.items()}) for p in self.programs]
        return Stats.total([self.measured, *levels])

    def __str__(self) -> str:
        lines = [str(plan) for plan in self.plans if plan.subgraphs]
        lines += [f"host: {name} ({why})" for name, why in self.fallback.items()]
        return "\n".join(lines) or "nothing to compute: the outputs are known"


class Runtime:
    """Runs a model. Programs are compiled on the first call with new input shapes, and kept.

    `graph` is what `brickrt.load` gives, or what it takes. `device` is auto, cpu, reference (NumPy, slow) or null (the
    schedule without arithmetic); `strategy` auto, layerwise, padded or memoized; `brick` the edge of spatial bricks;
    `threads` one per core by default; `max_layers` the most convolutions and products merged; `isa` a lesser
    instruction set of this CPU; `exact` rules out Winograd convolutions, whose rounding is a few 1e-6 larger.
    `progress(what, done, total)` is told of long steps, `watch(TaskEvents)` of every run.
    Raises BrickError, one line, for models, options and inputs that make no sense.
    """

    def __init__(
        self,
        graph: SourceGraph | str | Path | bytes | onnx.ModelProto,
        *,
        device: str = "auto",
        strategy: str = "auto",
        brick: int | None = None,
        threads: int | None = None,
        max_layers: int | None = None,
        exact: bool = False,
        isa: str | None = None,
        progress: Progress | None = None,
        watch: events.Watcher | None = None,
    ) -> None:
        try:
            options = PlanOptions(strategy, brick, max_layers, exact)
        except ValueError as e:
            raise BrickError(str(e)) from None
        self.threads = thread_count(threads)
        self.source = graph if isinstance(graph, SourceGraph) else load(graph)
        self._compiler = Compiler(choose_engine(device, isa), options, self.threads, progress)
        self._watch = watch
        self._roots: dict[frozenset[str], StageCache] = {}
        self._lock = threading.Lock()
        self._report: Report | None = None

    # ---- what it is

    @property
    def device(self) -> str:
        return self._compiler.engine.name

    @property
    def strategy(self) -> str:
        return self._compiler.options.strategy

    @property
    def plan(self) -> Report:
        """What the last call ran. Raises BrickError before the first one."""
        if self._report is None:
            raise BrickError("nothing is planned yet: call execute or prepare with inputs first")
        return self._report

    @property
    def plans(self) -> list[Plan]:
        """The plans of the last call, one per planned stage."""
        return [plan for plan in self.plan.plans if plan.subgraphs]

    @property
    def fallback(self) -> dict[str, str]:
        """ONNX nodes that the last call ran whole on the host, and why."""
        return dict(self.plan.fallback)

    @property
    def stats(self) -> Stats:
        """Figures of the last call."""
        return self.plan.stats

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *exc: object) -> None:
        self._roots.clear()

    # ---- running

    def execute(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The model's outputs by name: NumPy arrays, or lists and None for sequences and optionals.

        May be called from several threads.
        """
        values: dict[str, Any] = dict(check_inputs(self.source, inputs))
        call = _Call(self, values)
        cache: StageCache | None = self._root(frozenset(values))
        while cache is not None:
            cache = call.run_stage(cache)
        self._report = call.report()
        return {name: values[name] for name in self.source.outputs}

    def prepare(self, inputs: Mapping[str, Any]) -> Report:
        """Compiles for inputs like these what can be without running: the stages before the first host node.

        Only shapes and types matter, except of inputs that serve as shapes.
        """
        values = dict(check_inputs(self.source, inputs))
        compiled, spent = self._root(frozenset(values)).get(self._compiler, values)
        self._report = _report([compiled], [Stats(compile_ms=spent)])
        return self._report

    def _root(self, given: frozenset[str]) -> StageCache:
        """The first stage; which optional inputs are given decides what it is."""
        with self._lock:
            if given not in self._roots:
                self._roots[given] = StageCache(first_stage(self.source, given))
            return self._roots[given]


class _Call:
    """One `execute` under way; `values` grows stage by stage."""

    def __init__(self, runtime: Runtime, values: dict[str, Any]) -> None:
        self.runtime, self.values = runtime, values
        self.stages: list[Compiled] = []
        self.parts: list[Stats] = []

    def run_stage(self, cache: StageCache) -> StageCache | None:
        """Runs one stage with its host nodes; returns the next."""
        compiled, compile_ms = cache.get(self.runtime._compiler, self.values)
        self.stages.append(compiled)
        special = compiled.specialized
        started = time.perf_counter()
        part = self._run_program(compiled) if compiled.program else Stats()
        between = time.perf_counter()
        self.values |= special.known
        self.values |= {name: self.values[other] for name, other in special.same.items()}
        for node in special.host_nodes:
            results = run_node(node, cache.stage.source.opsets, self.values)
            self.values |= {n: value for n, value in zip(node.outputs, results) if n}
        ended = time.perf_counter()
        times = Stats(compile_ms=compile_ms, run_ms=(between - started) * 1e3, host_ms=(ended - between) * 1e3)
        self.parts.append(part + times)
        return compiled.rest

    def _run_program(self, compiled: Compiled) -> Stats:
        program, graph = compiled.program, compiled.plan.graph
        assert program is not None
        inputs = [np.require(self.values[name], requirements="C") for name in graph.inputs]
        outputs = [np.empty(graph.types[name].shape, graph.types[name].dtype) for name in graph.outputs]
        watch = self.runtime._watch
        filled = events.buffers(len(program.tasks), program.threads) if watch else None
        counts = program.run(inputs, outputs, filled)
        if watch and filled:
            watch(events.collect(filled))
        self.values |= dict(zip(graph.outputs, outputs, strict=True))
        return _stats(counts, program, [*inputs, *outputs])

    def report(self) -> Report:
        return _report(self.stages, self.parts)


def _stats(counts: Counts, program: Program, ends: Sequence[np.ndarray]) -> Stats:
    return Stats(
        tasks=counts.tasks,
        complete_first=counts.complete_first,
        waits=counts.waits,
        revisits=counts.revisits,
        recomputed=program.tasks.recomputed,
        peak_bytes=program.constant_bytes + program.working_bytes + sum(a.nbytes for a in ends),
    )


def _report(stages: Sequence[Compiled], parts: Sequence[Stats]) -> Report:
    fallback = {name: why for stage in stages for name, why in stage.specialized.host_reasons.items()}
    programs = tuple(stage.program for stage in stages if stage.program is not None)
    return Report(tuple(stage.plan for stage in stages), fallback, Stats.total(parts), programs)
