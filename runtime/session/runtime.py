"""`Runtime`: a model on a device. It specializes, plans, lowers and compiles on demand, and runs."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.check_inputs import check_inputs, check_named, describe
from brickrt.graph.onnx_import.source import Model, SourceGraph
from brickrt.graph.specialize.stages import first_stage, with_deciding_inputs
from brickrt.plan.options import PlanOptions, Precision, Rules, Strategy, check_options
from brickrt.plan.plan import Plan
from brickrt.runtime import events
from brickrt.runtime.after_fork import tell_children
from brickrt.runtime.arrays import on_device
from brickrt.runtime.compiled.compiled_source import CompiledSource, compiled_pipeline, model_source
from brickrt.runtime.engines import Device, Engine, choose_engine
from brickrt.runtime.execution.execution import Execution
from brickrt.runtime.execution.given_outputs import fill_given, given_outputs
from brickrt.runtime.execution.kept_programs import programs_kept_for
from brickrt.runtime.execution.report import Report, StageRun, report_of
from brickrt.runtime.execution.stage_cache import CompiledStage, StageCache
from brickrt.runtime.memory_amount import memory_amount
from brickrt.runtime.pipeline import Pipeline, import_steps
from brickrt.runtime.program_protocol import Cancellable, LaunchMode
from brickrt.runtime.progress import Progress
from brickrt.runtime.session.fast_path import FastPath, fast_path
from brickrt.runtime.session.known_inputs import KnownInputs
from brickrt.runtime.session.many_calls import in_order
from brickrt.runtime.stats import Stats
from brickrt.runtime.thread_count import thread_count

if TYPE_CHECKING:
    from brickrt.runtime.cache.saved_plan import SavedPlan
    from brickrt.runtime.session.cluster_stream import ClusterStream
    from brickrt.runtime.stream.stream_report import StreamReport
    from brickrt.runtime.windows.window_options import Blend
    from brickrt.runtime.windows.window_report import WindowReport


class Runtime:
    """Runs a model. Programs are compiled on the first call with new input shapes, and kept.

    `graph` is what `brickrt.load` gives, or what it takes, or the path of a file of `brickrt compile`. `device` is auto
    (a GPU if there is one, else the CPU), cpu, cuda, reference (NumPy, slow) or null (the schedule without arithmetic);
    `strategy` auto, layerwise, padded, memoized or fused; `rules` what auto goes by: model, brickdl or unfused
    (docs/tuning.md); `brick` the edge of spatial bricks; `threads` one per core by default; `max_layers` the most
    convolutions and products merged; `isa` a lesser instruction set of this CPU; `exact` rules out Winograd,
    Strassen and pairs of products, which round otherwise (docs/exactness.md).
    `precision` is fp32 or bf16: products of bfloat16 with sums in float32, and results between layers in bfloat16. For
    a GPU it may be tf32 too (products of float32 on matrix units), or fp16 (all between inputs and outputs, as with
    bf16 there), and `launch` is how it runs plans: auto, streams, dynamic (the host starts launches as others end),
    graph (all in one CUDA graph) or persistent (the same, with memoized subgraphs as persistent kernels).
    `progress(what, done, total)` is told of long steps, `watch` of every run: a function is given its TaskEvents
    afterwards, an `events.Observer` is told while it goes on.
    `plan` is a file of `brickrt plan --output`, which has decided strategy, brick, max_layers, exact and rules already.
    `keep_bytes` bounds what programs hold between calls (weights as kernels read them, and memory for tensors), 2 GiB
    by default: the least recently used go first, that of the last call stays.
    With `client`, a `dask.distributed.Client`, `stream` runs on the workers of its cluster; other calls run here.
    Raises BrickError, one line, for models, options and inputs that make no sense.
    """

    _closed = False
    _known: KnownInputs | None = None

    def __init__(
        self,
        graph: SourceGraph | Model,
        *,
        device: Device = "auto",
        strategy: Strategy = "auto",
        brick: int | None = None,
        threads: int | None = None,
        max_layers: int | None = None,
        exact: bool = False,
        isa: str | None = None,
        precision: Precision = "fp32",
        rules: Rules = "model",
        launch: LaunchMode = "auto",
        progress: Progress | None = None,
        watch: events.Watcher | events.Observer | None = None,
        plan: str | Path | None = None,
        keep_bytes: int | None = None,
        client: Any = None,
    ) -> None:
        self._kept = programs_kept_for(self, keep_bytes)
        options = _options(strategy, brick, max_layers, exact, precision, rules)
        self.threads = thread_count(threads)
        self.source = model_source(graph)
        if isinstance(self.source, CompiledSource):
            asked = _unlike_compiled(device, options, isa, launch, watch, plan)
            self._pipeline = compiled_pipeline(self.source, self.threads, asked)
        else:
            engine = import_steps(choose_engine(device, isa, launch))
            check_options(engine.spec, precision, strategy)
            saved = None if plan is None else _saved(plan, engine, options)
            self._pipeline = Pipeline(engine, saved.options if saved else options, self.threads, progress, saved)
        self._cluster = None if client is None else _cluster(client, graph, self._pipeline, isa=isa, plan=plan)
        self._observer = events.observer_of(watch)
        self._running: list[Cancellable] = []
        self._roots: dict[frozenset[str], StageCache] = {}
        self._lock = threading.Lock()
        tell_children(self)
        self._last: Sequence[StageRun] | Report | None = None
        self._fast: FastPath | None = None

    def after_fork(self) -> None:
        """See `Forked`: runs that were under way in other threads are not so in a child."""
        self._lock = threading.Lock()
        self._running.clear()

    def __reduce__(self) -> NoReturn:
        """Says what to do instead of pickling or copying a runtime."""
        raise BrickError("a Runtime holds compiled code and threads: send its model, and make one in each process")

    # ---- what it is

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name} {describe(info)}" for name, info in self.source.inputs.items())
        asked = f"device={self.device!r}, strategy={self.strategy!r}, threads={self.threads}"
        return f"Runtime({self.source.name!r}, {asked}; takes {textwrap.shorten(inputs or 'nothing', 200)})"

    @property
    def device(self) -> str:
        """The engine's name: cpu, cuda, reference or null."""
        return self._pipeline.engine.name

    @property
    def strategy(self) -> str:
        """The strategy that was asked for."""
        return self._pipeline.options.strategy

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
        self.close()

    def close(self) -> None:
        """Gives up all programs and their memory: calls raise BrickError from now on. What the last call ran and
        measured is still known."""
        self._closed = True
        self._roots.clear()
        self._kept.clear()
        self._fast = None
        if self._last is not None:
            self._last = self.plan.released()

    # ---- running

    def execute(
        self, inputs: Mapping[str, Any], *, outputs: Mapping[str, Any] | None = None, stream: Any = None
    ) -> dict[str, Any]:
        """The model's outputs by name: NumPy arrays, or lists and None for sequences and optionals.

        Inputs may be arrays of other libraries (torch, JAX, anything with DLPack or `__array__`): those in row-major
        order are read where they lie. `outputs` are arrays of the caller's, by name, of the outputs' types and shapes:
        the results are written there, and given back.
        With device cuda, inputs may lie on the GPU: any arrays of the CUDA array interface or DLPack. Outputs are then
        CuPy arrays; with `stream`, CuPy's or another library's, they are so once the stream is there: the call may
        return before, and inputs must stay until then. May be called from several threads.
        """
        fast = self._fast
        if fast is not None and (given := fast.taken(inputs)) is not None and self._takes(stream):
            results, ran = fast.run(given, stream, self._into(outputs, given.arrays))
            self._last = ran
            return results
        self._check_open()
        values = self._known.taken(inputs) if self._takes(stream) and self._known else None
        if values is None:
            values = check_inputs(self.source, self._viewed(inputs, stream))
            self._known = KnownInputs(values)
        root, into = self._root(frozenset(values)), self._into(outputs, values.values())
        execution = Execution(values, self._observer, self._running, self._pipeline.engine.arrays, stream, into)
        self._pipeline.execute(root, execution)
        fill_given(into, execution.values)
        self._remember(values, [one.stage for one in execution.ran])
        self._last = execution.ran
        return {name: execution.values[name] for name in self.source.outputs}

    async def execute_async(
        self, inputs: Mapping[str, Any], *, outputs: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """As `execute`, in another thread while the event loop goes on. A task that is cancelled meanwhile does not end
        the run: `cancel` does."""
        import asyncio  # which who awaits has imported: here it would take longer than all else of this module

        return await asyncio.to_thread(self.execute, inputs, outputs=outputs)

    def execute_many(self, inputs: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """The outputs of each of `inputs`, in their order, one call after the other. Two calls' inputs and outputs are
        held at a time, so that a generator may give more than fits in memory; the next one is read during a call.
        """
        self._check_open()
        return in_order(self.execute, inputs)

    @overload
    def stream(
        self,
        inputs: Any,
        outputs: Any,
        *,
        max_memory: int | str | None = ...,
        resume: bool = ...,
        stored: str | None = ...,
        scale: float | None = ...,
        spill: Literal["auto", "never"] = ...,
        scratch: str | Path | None = ...,
    ) -> StreamReport:
        """Band by band: the exact result."""

    @overload
    def stream(
        self,
        inputs: Any,
        outputs: Any,
        *,
        max_memory: int | str | None = ...,
        resume: bool = ...,
        stored: str | None = ...,
        scale: float | None = ...,
        window: int | tuple[int, ...],
        overlap: float | None = ...,
        blend: Blend | None = ...,
    ) -> WindowReport:
        """On blended windows: another result."""

    def stream(
        self,
        inputs: Any,
        outputs: Any,
        *,
        max_memory: int | str | None = None,
        resume: bool = False,
        stored: str | None = None,
        scale: float | None = None,
        window: int | tuple[int, ...] | None = None,
        overlap: float | None = None,
        blend: Blend | None = None,
        spill: Literal["auto", "never"] = "auto",
        scratch: str | Path | None = None,
    ) -> StreamReport | WindowReport:
        """Runs the model band by band from files to files, in `max_memory` (bytes, "1GiB") or 80 % of what is free.

        `inputs` are paths (.npy, .zarr, .tif, .nii, .h5) or anything with shape, dtype and slices, by name, or one
        alone; values are converted, not scaled. `outputs` are paths by name, or one alone. Files hold the type
        `stored`, such as "uint8", by default the outputs' own; floats are multiplied with `scale` before, rounded and
        clipped. With `spill` "auto", what several passes need goes through files in the folder `scratch`, by default
        beside the output, where that takes less time than computing again, or nothing else fits. With `resume` a run
        that was ended goes on, to the same bytes. Raises Cancelled after `cancel`, and BrickError: where the limit is
        too low, with the least; where an operator is not run band by band; for files that cannot be read or written.

        With a `window`, one extent for all axes behind the channels or one for each, the network runs on windows of an
        image of any size instead, each overlapping the next by the share `overlap` (0.5), and results are blended with
        weights, `blend` "gaussian" or "constant". That is not the exact result, and the report says so. A runtime with
        a client has workers run it, in `max_memory` each, from paths to Zarr arrays, and reports a `ClusterReport`.
        """
        from brickrt.runtime.session.file_streams import StreamOptions, stream_files  # here: see there

        limit, files, asked = memory_amount("max_memory", max_memory), (inputs, outputs), (window, overlap, blend)
        options = StreamOptions(limit, stored, scale, resume, spill=spill, scratch=scratch)
        return stream_files(self._streaming(), self.source, files, options, asked, self._cluster, self._running)

    def cancel(self) -> None:
        """Ends what is under way, loops on the host too, in all threads: their `execute` raises `Cancelled`."""
        for run in tuple(self._running):
            run.cancel()

    def prepare(self, inputs: Mapping[str, Any]) -> Report:
        """Compiles for inputs like these what can be without running: the stages before the first host node.

        Only shapes and types matter, except of inputs that serve as shapes.
        """
        pipeline = self._check_open()
        values = check_inputs(self.source, self._viewed(inputs, None))
        compiled, spent = self._root(frozenset(values)).get(pipeline.compiled, values, pipeline.engine.arrays)
        self._last = report = report_of([StageRun(compiled, compile_ms=spent)])
        return report

    def _check_open(self) -> Pipeline:
        """How models run. Raises BrickError once the runtime is closed."""
        if self._closed:
            raise BrickError(f"the runtime of '{self.source.name}' is closed: make another one")
        return self._pipeline

    def _streaming(self) -> Pipeline:
        """How models run band by band. Raises BrickError where nodes are not known."""
        if isinstance(self.source, CompiledSource):
            raise BrickError(f"{self.source.path}: is compiled, and runs only whole: give the .onnx file")
        return self._check_open()

    def _into(self, outputs: Mapping[str, Any] | None, inputs: Iterable[Any]) -> dict[str, np.ndarray]:
        """The caller's arrays for outputs. Raises BrickError where they cannot be written."""
        if not outputs:
            return {}
        used = list(inputs)
        if any(map(on_device, used)):
            raise BrickError("outputs are on the GPU where inputs are: leave out the arrays for them")
        return given_outputs(outputs, self.source.outputs, used)

    def _takes(self, stream: Any) -> bool:
        """Raises BrickError for a stream where the device has none."""
        if stream is not None and self._pipeline.engine.arrays is None:
            raise BrickError(f"device '{self.device}' has no streams: use device='cuda'")
        return True

    def _viewed(self, inputs: Mapping[str, Any], stream: Any) -> Mapping[str, Any]:
        """The inputs, those on a GPU as the engine's own arrays."""
        check_named(inputs, self.source.inputs)
        self._takes(stream)
        arrays = self._pipeline.engine.arrays
        there = {name: value for name, value in inputs.items() if on_device(value)}
        if arrays is None and there:
            raise BrickError(f"input '{min(there)}' lies on a GPU: use device='cuda', or give a NumPy array")
        if arrays is None or not there:
            return inputs
        return {**inputs, **{name: arrays.view(value, stream) for name, value in there.items()}}

    def _remember(self, values: Mapping[str, Any], stages: Sequence[CompiledStage]) -> None:
        """Lets further calls like this one take the fast path, where they can."""
        names = tuple(self.source.outputs)
        if not self._closed:
            arrays = self._pipeline.engine.arrays
            found = fast_path(values, stages, names, self._running, self._observer, arrays)
            self._fast = found or self._fast

    def _root(self, given: frozenset[str]) -> StageCache:
        """The first stage; which optional inputs are given decides what it is."""
        with self._lock:
            if given not in self._roots:
                self._roots[given] = StageCache(with_deciding_inputs(first_stage(self.source, given)), self._kept)
            return self._roots[given]


def _options(
    strategy: Strategy, brick: int | None, max_layers: int | None, exact: bool, precision: Precision, rules: Rules
) -> PlanOptions:
    """What is asked of the planner. Raises BrickError where it makes no sense."""
    try:
        return PlanOptions(strategy, brick, max_layers, exact, precision, rules)
    except ValueError as e:
        raise BrickError(str(e)) from None


def _cluster(client: Any, model: SourceGraph | Model, pipeline: Pipeline, **unfit: object) -> ClusterStream | None:
    from brickrt.runtime.session.cluster_stream import cluster_stream  # here, as for files

    return cluster_stream(client, model, pipeline, unfit)


def _unlike_compiled(
    device: Device, options: PlanOptions, isa: str | None, launch: LaunchMode, watch: object, plan: object
) -> dict[str, Any]:
    """The options that a compiled file has settled, where they are not the default's."""
    usual = {name: getattr(PlanOptions(), name) for name in vars(options)} | {"launch": "auto", "device": "cpu"}
    given = vars(options) | {"launch": launch, "device": "cpu" if device == "auto" else device}
    given |= {"isa": isa, "watch": watch, "plan": plan}
    return {name: value for name, value in given.items() if value != usual.get(name)}


def _saved(path: str | Path, engine: Engine, options: PlanOptions) -> SavedPlan:
    """A plan from a file. Raises BrickError where options are given that it has decided already."""
    if not isinstance(path, str | Path):
        raise BrickError(f"plan is a {type(path).__name__}: give the path of a file of brickrt plan --output")
    if options != PlanOptions(precision=options.precision):
        raise BrickError(f"{path}: has strategy, brick, max_layers, exact and rules in it: leave them out")
    from brickrt.runtime.cache.saved_plan import SavedPlan  # here: compiled files have no use for the planner

    return SavedPlan.read(Path(path), engine.spec, options.precision)
