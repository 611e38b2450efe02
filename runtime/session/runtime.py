"""`Runtime`: a model on a device. It specializes, plans, lowers and compiles on demand, and runs."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.check_inputs import check_inputs, check_named
from brickrt.graph.onnx_import.source import SourceGraph, load
from brickrt.graph.specialize.stages import first_stage
from brickrt.plan.options import PlanOptions, Precision, Strategy, check_precision
from brickrt.plan.plan import Plan
from brickrt.runtime import events
from brickrt.runtime.arrays import on_device
from brickrt.runtime.program_protocol import LaunchMode, Program
from brickrt.runtime.session.engines import choose_engine
from brickrt.runtime.session.execution import Execution, Signature, signature_of
from brickrt.runtime.session.fast_path import FastPath
from brickrt.runtime.session.report import Report, StageRun, report_of
from brickrt.runtime.session.stage_cache import CompiledStage, Compiler, Progress, StageCache
from brickrt.runtime.stats import Stats
from brickrt.runtime.thread_count import thread_count


class Runtime:
    """Runs a model. Programs are compiled on the first call with new input shapes, and kept.

    `graph` is what `brickrt.load` gives, or what it takes. `device` is auto (a GPU if there is one, else the CPU), cpu,
    cuda, reference (NumPy, slow) or null (the schedule without arithmetic); `strategy` auto, layerwise, padded or
    memoized; `brick` the edge of spatial bricks; `threads` one per core by default; `max_layers` the most convolutions
    and products merged; `isa` a lesser instruction set of this CPU; `exact` rules out Winograd and Strassen, whose
    rounding is a few 1e-6 larger.
    For a GPU, `precision` is fp32, tf32 (products of float32 on matrix units), fp16 or bf16 (all between inputs and
    outputs), and `launch` how it runs plans: auto, streams, graph (all in one CUDA graph) or persistent (the same, with
    memoized subgraphs as persistent kernels).
    `progress(what, done, total)` is told of long steps, `watch` of every run: a function is given its TaskEvents
    afterwards, an `events.Observer` is told while it goes on.
    Raises BrickError, one line, for models, options and inputs that make no sense.
    """

    def __init__(
        self,
        graph: SourceGraph | str | Path | bytes | onnx.ModelProto,
        *,
        device: str = "auto",
        strategy: Strategy = "auto",
        brick: int | None = None,
        threads: int | None = None,
        max_layers: int | None = None,
        exact: bool = False,
        isa: str | None = None,
        precision: Precision = "fp32",
        launch: LaunchMode = "auto",
        progress: Progress | None = None,
        watch: events.Watcher | events.Observer | None = None,
    ) -> None:
        try:
            options = PlanOptions(strategy, brick, max_layers, exact, precision)
        except ValueError as e:
            raise BrickError(str(e)) from None
        self.threads = thread_count(threads)
        self.source = graph if isinstance(graph, SourceGraph) else load(graph)
        engine = choose_engine(device, isa, launch)
        check_precision(engine.spec, precision)
        self._compiler = Compiler(engine, options, self.threads, progress)
        self._observer = events.observer_of(watch)
        self._running: list[Program] = []
        self._roots: dict[frozenset[str], StageCache] = {}
        self._lock = threading.Lock()
        self._last: Sequence[StageRun] | Report | None = None
        self._known: tuple[Signature, StageCache, CompiledStage] | None = None
        self._repeat: FastPath | None = None

    # ---- what it is

    @property
    def device(self) -> str:
        """The engine's name: cpu, cuda, reference or null."""
        return self._compiler.engine.name

    @property
    def strategy(self) -> str:
        """The strategy that was asked for."""
        return self._compiler.options.strategy

    @property
    def plan(self) -> Report:
        """What the last call ran. Raises BrickError before the first one."""
        last = self._last
        if last is None:
            raise BrickError("nothing is planned yet: call execute or prepare with inputs first")
        if not isinstance(last, Report):
            self._last = last = report_of(last)
        return last

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
        """Gives up all programs; what the last call ran and measured is still known."""
        self._roots.clear()
        self._known = self._repeat = None
        if self._last is not None:
            self._last = self.plan.released()

    # ---- running

    def execute(self, inputs: Mapping[str, Any], *, stream: Any = None) -> dict[str, Any]:
        """The model's outputs by name: NumPy arrays, or lists and None for sequences and optionals.

        With device cuda, inputs may lie on the GPU: any arrays of the CUDA array interface or DLPack. Outputs are then
        CuPy arrays; with `stream`, CuPy's or another library's, they are so once the stream is there: the call may
        return before, and inputs must stay until then. May be called from several threads.
        """
        repeat = self._repeat
        if repeat is not None and stream is None and (arrays := repeat.taken(inputs)) is not None:
            outputs, ran = repeat.run(arrays)
            self._last = (ran,)
            return outputs
        inputs = self._taken(inputs, stream)
        signature, known = signature_of(inputs), self._known
        if signature is not None and known is not None and known[0] == signature:
            call = self._call(inputs, stream)
            call.run_stage(known[1].stage, known[2])
        else:
            call = self._checked_call(signature, inputs, stream)
        self._last = call.ran
        return {name: call.values[name] for name in self.source.outputs}

    def cancel(self) -> None:
        """Ends the task graphs under way, in all threads: their `execute` raises `engine.Cancelled`."""
        for program in tuple(self._running):
            program.cancel()

    def _taken(self, inputs: Mapping[str, Any], stream: Any) -> Mapping[str, Any]:
        """The inputs, those on a GPU as the engine's own arrays."""
        check_named(inputs, self.source.inputs)
        arrays = self._compiler.engine.arrays
        if arrays is None and stream is not None:
            raise BrickError(f"device '{self.device}' has no streams: use device='cuda'")
        there = {name: value for name, value in inputs.items() if on_device(value)}
        if arrays is None and there:
            raise BrickError(f"input '{min(there)}' lies on a GPU: use device='cuda', or give a NumPy array")
        if arrays is None or not there:
            return inputs
        return {**inputs, **{name: arrays.view(value, stream) for name, value in there.items()}}

    def _call(self, values: Mapping[str, Any], stream: Any) -> Execution:
        return Execution(self._observer, self._running, dict(values), self._compiler.engine.arrays, stream)

    def _checked_call(self, signature: Signature | None, inputs: Mapping[str, Any], stream: Any) -> Execution:
        """A call whose inputs are looked at; remembers the program where their types alone decide it."""
        call = self._call(check_inputs(self.source, inputs), stream)
        root = self._root(frozenset(call.values))
        cache: StageCache | None = root
        while cache is not None:
            compiled, compile_ms = cache.get(self._compiler, call.values)
            call.run_stage(cache.stage, compiled, compile_ms)
            if signature is not None and cache is root and compiled.rest is None and not cache.value_names:
                self._known = signature, cache, compiled
                self._repeat = self._repeated(signature, compiled)
            cache = compiled.rest
        return call

    def _repeated(self, signature: Signature, compiled: CompiledStage) -> FastPath | None:
        """How further calls like this one go, where all is in the host's memory."""
        if self._compiler.engine.arrays is not None or not FastPath.possible(compiled, tuple(self.source.outputs)):
            return None
        return FastPath(signature, compiled, tuple(self.source.outputs), self._running, self._observer)

    def prepare(self, inputs: Mapping[str, Any]) -> Report:
        """Compiles for inputs like these what can be without running: the stages before the first host node.

        Only shapes and types matter, except of inputs that serve as shapes.
        """
        values = dict(check_inputs(self.source, self._taken(inputs, None)))
        compiled, spent = self._root(frozenset(values)).get(self._compiler, values)
        self._last = report = report_of([StageRun(compiled, compile_ms=spent)])
        return report

    def _root(self, given: frozenset[str]) -> StageCache:
        """The first stage; which optional inputs are given decides what it is."""
        with self._lock:
            if given not in self._roots:
                self._roots[given] = StageCache(first_stage(self.source, given))
            return self._roots[given]
