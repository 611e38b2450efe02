"""One `execute` under way. A small network takes less than a millisecond: nothing here does what can be done later."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from brickrt.graph.builder import OnnxNode
from brickrt.graph.host import run_node
from brickrt.graph.specialize import Stage
from brickrt.runtime import events
from brickrt.runtime.compiled import Compiled
from brickrt.runtime.engine import Program
from brickrt.runtime.report import Ran

Signature = tuple[tuple[str, tuple[int, ...], np.dtype], ...]


def signature_of(inputs: Mapping[str, Any]) -> Signature | None:
    """Names, shapes and types of the inputs; None where not all are arrays of numbers, whose types say all."""
    signature = []
    for name, array in inputs.items():
        if type(array) is not np.ndarray or array.dtype.kind in "OUS":
            return None
        signature.append((name, array.shape, array.dtype))
    return tuple(signature)


class Call:
    """`values` grows stage by stage; `running` has the programs under way, of all calls of a runtime."""

    def __init__(self, observer: events.Observer | None, running: list[Program], values: dict[str, Any]) -> None:
        self.observer, self.running, self.values = observer, running, values
        self.ran: list[Ran] = []

    def run_stage(self, stage: Stage, compiled: Compiled, compile_ms: float = 0.0) -> None:
        """Runs the stage's program, then its host nodes."""
        ran, special = Ran(compiled, compile_ms=compile_ms), compiled.specialized
        started = time.perf_counter()
        if compiled.program is not None:
            self.run_program(ran)
        between = time.perf_counter()
        self.values |= special.known
        for name, other in special.same.items():
            self.values[name] = self.values[other]
        for node in special.host_nodes:
            ran.host_nodes[node.name] = self.run_host(node, stage)
        ran.run_ms, ran.host_ms = (between - started) * 1e3, (time.perf_counter() - between) * 1e3
        self.ran.append(ran)

    def run_program(self, ran: Ran) -> None:
        program, graph = ran.stage.program, ran.stage.plan.graph
        assert program is not None
        inputs = [np.asarray(self.values[name], order="C") for name in graph.inputs]
        outputs = [np.empty(graph.types[name].shape, graph.types[name].dtype) for name in graph.outputs]
        filled = events.buffers(len(program.tasks), program.threads) if self.observer else None
        self.running.append(program)
        try:
            if self.observer and filled:
                self.observer.began(program.tasks, filled)
            ran.counts = program.run(inputs, outputs, filled)
        finally:
            self.running.remove(program)
        if self.observer and filled:
            self.observer.ended(program.tasks, events.collect(filled))
        for name, array in zip(graph.outputs, outputs, strict=True):
            self.values[name] = array

    def run_host(self, node: OnnxNode, stage: Stage) -> float:
        """Computes one ONNX node whole; gives the milliseconds that it took."""
        started = time.monotonic_ns()
        if self.observer:
            self.observer.hosted(node.name, started, 0)
        results = run_node(node, stage.source.opsets, self.values)
        self.values |= {n: value for n, value in zip(node.outputs, results) if n}
        ended = time.monotonic_ns()
        if self.observer:
            self.observer.hosted(node.name, started, ended)
        return (ended - started) / 1e6
