"""One `execute` under way. A small network takes less than a millisecond: nothing here does what can be done later."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np

from brickrt.graph.allowance import hold
from brickrt.graph.builder import OnnxNode
from brickrt.graph.errors import last_resort
from brickrt.graph.host.guarded import asking
from brickrt.graph.host.quick import quick_outputs
from brickrt.graph.host.run_host_node import reads, run_node
from brickrt.graph.specialize.stages import Stage
from brickrt.ops.types import TensorType
from brickrt.runtime import events
from brickrt.runtime.arrays import DeviceArrays, on_device
from brickrt.runtime.cpu.memory import output_array
from brickrt.runtime.execution.control.subgraph_runner import SubgraphRunner, has_bodies
from brickrt.runtime.execution.given_outputs import check_given
from brickrt.runtime.execution.host_node_run import HostNodeRun
from brickrt.runtime.execution.kept_programs import KeptPrograms
from brickrt.runtime.execution.report import StageRun
from brickrt.runtime.execution.stage_cache import CompiledStage, Prepare
from brickrt.runtime.program_protocol import Cancellable, Counts, Program


@contextmanager
def among(running: list[Cancellable], one: Cancellable) -> Iterator[None]:
    """Inside, `one` is among those that are cancelled when the runtime is."""
    running.append(one)
    try:
        yield
    finally:
        with suppress(ValueError):  # in a child that this thread's observer forked nothing is under way
            running.remove(one)


def run_watched(
    program: Program,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    running: list[Cancellable],
    observer: events.Observer | None,
    **stream: Any,
) -> Counts:
    """Runs a program, which is among those `running` meanwhile; the observer, if there is one, is told of it."""
    filled = events.buffers(len(program.tasks), program.threads) if observer else None
    with among(running, program):
        if observer and filled:
            observer.began(program.tasks, filled)
        counts = program.run(inputs, outputs, filled, **stream)
    if observer and filled:
        observer.ended(program.tasks, events.TaskEvents(filled))
    return counts


class Bodies(NamedTuple):
    """What compiles the subgraphs of nodes, and what counts the programs that it makes."""

    prepare: Prepare
    kept: KeptPrograms


class Execution:
    """One call under way. `values` has the inputs, and grows stage by stage; `ran` says what each stage took.

    `running` has what is under way, of all calls of a runtime; `observer` watches it. Where some inputs lie on a
    GPU, so do the outputs of programs: made by `arrays`, on the caller's stream if given. `given` are the caller's
    arrays for outputs, which programs write where they compute them. `bodies` is how subgraphs are compiled; without
    it the host evaluates nodes with subgraphs node by node.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        observer: events.Observer | None = None,
        running: list[Cancellable] | None = None,
        arrays: DeviceArrays | None = None,
        stream: Any = None,
        given: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.values: dict[str, Any] = dict(values)
        self.observer, self.running = observer, [] if running is None else running
        self.arrays = arrays if any(map(on_device, self.values.values())) else None
        self.stream, self.given = stream, {} if given is None else given
        self.ran: list[StageRun] = []
        self.bodies: Bodies | None = None

    def run_stage(self, stage: Stage, compiled: CompiledStage, compile_ms: float = 0.0) -> None:
        """Runs the stage's program, then its host nodes."""
        ran, special = StageRun(compiled, compile_ms=compile_ms), compiled.specialized
        started = time.perf_counter()
        if compiled.program is not None:
            self.run_program(ran)
        between = time.perf_counter()
        self.values |= special.known
        for name, other in special.same.items():
            self.values[name] = self.values[other]
        inside: list[StageRun] = []
        for node in special.host_nodes:
            ran.host_nodes[node.name] = self.run_host(node, stage, compiled, inside)
        ran.run_ms, ran.host_ms = (between - started) * 1e3, (time.perf_counter() - between) * 1e3
        ran.host_ms -= sum(one.run_ms + one.compile_ms for one in inside)
        self.ran += [ran, *inside]

    def run_program(self, ran: StageRun) -> None:
        """Runs a stage's program, and counts what its workers did."""
        program, graph = ran.stage.program, ran.stage.plan.graph
        assert program is not None
        inputs = [self.input(self.values[name]) for name in graph.inputs]
        with last_resort(lambda: f"making room for the outputs {', '.join(map(repr, graph.outputs))}"):
            outputs = [self.output(name, graph.types[name]) for name in graph.outputs]
            hold(sum(graph.types[name].nbytes for name in graph.outputs))
        stream = {} if self.stream is None else {"stream": self.stream}
        ran.counts = run_watched(program, inputs, outputs, self.running, self.observer, **stream)
        for name, array in zip(graph.outputs, outputs, strict=True):
            self.values[name] = array

    def input(self, value: Any) -> Any:
        """A value as programs take it."""
        return value if self.arrays and on_device(value) else np.asarray(value, order="C")

    def output(self, name: str, kind: TensorType) -> Any:
        """An array for a program to write."""
        if name in self.given:
            return check_given(name, self.given[name], kind)
        return self.arrays.empty(kind, self.stream) if self.arrays else output_array(kind.shape, kind.dtype)

    def on_host(self, name: str) -> Any:
        """A value as host nodes take it."""
        value = self.values[name]
        return self.arrays.host(value, self.stream) if self.arrays and on_device(value) else value

    def run_host(self, node: OnnxNode, stage: Stage, compiled: CompiledStage, inside: list[StageRun]) -> float:
        """Computes one ONNX node whole; gives the milliseconds that it took, less those of programs inside it, and adds
        what these were to `inside`."""
        started = time.monotonic_ns()
        if self.observer:
            self.observer.hosted(node.name, started, 0)
        elif self.arrays is None and (quick := quick_outputs(node, self.values)) is not None:
            hold(sum(value.nbytes for value in quick))  # so little that nobody ends it, or counts its time
            self.values |= zip(node.outputs, quick)
            return (time.monotonic_ns() - started) / 1e6
        given, run = {name: self.on_host(name) for name in reads(node)}, HostNodeRun(node)
        programs = 0.0
        with among(self.running, run), asking(run.check):
            if self.bodies is not None and has_bodies(node):
                control = SubgraphRunner(*self.bodies, run)
                results = control.whole(node, stage, compiled, given)
                inside += control.ran.values()
                programs = sum(one.run_ms + one.compile_ms for one in control.ran.values())
            else:
                results = run_node(node, stage.source.opsets, given)
        run.ended()
        self.values |= {n: value for n, value in zip(node.outputs, results) if n}
        ended = time.monotonic_ns()
        if self.observer:
            self.observer.hosted(node.name, started, ended)
        return (ended - started) / 1e6 - programs
