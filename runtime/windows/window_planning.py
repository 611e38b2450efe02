"""How a network runs on windows, and the memory that it takes, known before it is compiled."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.graph.ir import Graph
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.graph.onnx_import.tensor_info import TensorInfo
from brickrt.graph.room import available_bytes
from brickrt.ops.types import Shape, TensorType
from brickrt.plan.device.device_spec import host_device
from brickrt.plan.plan import Plan
from brickrt.plan.stream.stream_memory import WORKSPACE, StreamMemory
from brickrt.runtime.analysis.memory_projection import project
from brickrt.runtime.lowering.task_graph import TaskGraph
from brickrt.runtime.pipeline import Pipeline, import_steps, without_constants
from brickrt.runtime.stream.resident import resident_bytes
from brickrt.runtime.stream.stream_planning import FREE_SHARE, in_core_bytes, whole_graph
from brickrt.runtime.windows.blended_rows import BlendedRows
from brickrt.runtime.windows.decision import NO_DECISION, Decision
from brickrt.runtime.windows.window_layout import Extents, WindowLayout, scaled_layout
from brickrt.runtime.windows.window_options import WindowOptions

MIB = 2**20
WRITER_BYTES = 2**24  # that one may hold, beside copies of what it writes
COPIES = 3
MULTIPLES = (2, 4, 8, 16, 32, 64, 128)  # that networks halve to


@dataclass(frozen=True)
class BlendedOutput:
    """An output of the network: of a window, blended over the whole image, and as it is written."""

    window: TensorType
    whole: TensorType
    written: TensorType
    layout: WindowLayout

    @property
    def sums(self) -> np.dtype:
        """The type of the weighted sums."""
        return np.dtype(np.float64 if self.window.dtype == np.float64 else np.float32)

    @property
    def channels(self) -> int:
        """Its channels."""
        return self.window.shape[1]

    @property
    def finished_bytes(self) -> int:
        """Bytes of the most rows that are finished together, as they are written."""
        rows = max(end - begin for begin, end in map(self.layout.finished, range(self.layout.rows)))
        return rows * self.written.nbytes // (self.written.shape[0] * self.written.shape[2])


@dataclass(frozen=True, eq=False)
class PlannedWindows:
    """A network on windows of one input, [batch, channels, …] with the image's extents `shape`; the limit in bytes."""

    options: WindowOptions
    decision: Decision
    shape: Shape
    given: TensorType
    layout: WindowLayout
    outputs: dict[str, BlendedOutput]
    plan: Plan
    tasks: TaskGraph
    constants: dict[str, np.ndarray]
    memory: StreamMemory
    limit: int
    plan_s: float

    @property
    def windows(self) -> int:
        """How many windows all images have."""
        return self.shape[0] * self.layout.rows * len(self.layout.places)


def plan_windows(
    pipeline: Pipeline,
    source: SourceGraph,
    image: TensorType,
    options: WindowOptions,
    decision: Decision,
    max_memory: int | None = None,
    reading: int = 0,
) -> PlannedWindows:
    """Plans one window, and the rows that are held of an image of the type `image`. `reading` are bytes that the reader
    holds. Raises BrickError, where the limit is too low with what is needed."""
    import_steps(pipeline.engine)  # what a process holds is measured with it
    began = time.perf_counter()
    name, info = input_of(source)
    decision.check(len(source.outputs), len(image.shape))
    layout = WindowLayout.of(image.shape[2:], options)
    given = TensorType((_batch(info), image.shape[1], *layout.window), image.dtype)
    graph = _graph(source, name, given)
    outputs = _outputs(graph, image.shape[0], layout, decision)
    plan = pipeline.plan(graph, measured=False)
    limit = max_memory or resident_bytes() + int(FREE_SHARE * available_bytes())
    held = _held_bytes(given, layout, outputs)
    _check(layout, limit, resident_bytes() + held + in_core_bytes(plan))
    plan, constants = without_constants(plan)
    tasks = pipeline.lower(plan)
    memory = _memory(tasks, pipeline.threads, held, reading + _writing(outputs, decision))
    _check(layout, limit, memory.total)
    seconds = time.perf_counter() - began
    return PlannedWindows(
        options, decision, image.shape, given, layout, outputs, plan, tasks, constants, memory, limit, seconds
    )


def input_of(source: SourceGraph) -> tuple[str, TensorInfo]:
    """The network's input, which windows are cut from. Raises BrickError where there are several, or none with rows."""
    if len(source.inputs) != 1:
        names = ", ".join(map(repr, source.inputs)) or "none"
        raise BrickError(f"the model has the inputs {names}: windows are cut from one: leave the window out")
    name, info = next(iter(source.inputs.items()))
    if info.dtype is None or info.shape is None or len(info.shape) < 3:
        raise BrickError(f"the model's input '{name}' has no rows to cut windows from: leave the window out")
    return name, info


def of_any_size(source: SourceGraph) -> SourceGraph:
    """The model, with an input whose batch and extents behind the channels are open: those of files."""
    name, info = input_of(source)
    assert info.shape is not None
    shape = tuple(extent if axis == 1 else None for axis, extent in enumerate(info.shape))
    return replace(source, inputs={name: TensorInfo(info.dtype, shape)})


def _batch(info: TensorInfo) -> int:
    """Windows that run together: as many as the network says, else one, which all threads work on."""
    first = (info.shape or (1,))[0]
    return first if isinstance(first, int) else 1


def _graph(source: SourceGraph, name: str, given: TensorType) -> Graph:
    """The network on windows. Where it takes no such ones, the error says which near it would do."""
    window = given.shape[2:]
    _check_fixed(source, name, window)
    try:
        return _taken(source, name, given)
    except BrickError as e:
        near = (tuple(-(-extent // multiple) * multiple for extent in window) for multiple in MULTIPLES)
        kinds = (TensorType((*given.shape[:2], *other), given.dtype) for other in near if other != window)
        other = next((kind for kind in kinds if _is_taken(source, name, kind)), None)
        if other is None:
            raise
        raise BrickError(f"{e}; windows of {text_of(other.shape[2:])} would do") from e


def _is_taken(source: SourceGraph, name: str, given: TensorType) -> bool:
    try:
        _taken(source, name, given)
    except BrickError:
        return False
    return True


def _taken(source: SourceGraph, name: str, given: TensorType) -> Graph:
    """The network on windows. Raises BrickError where it takes no such ones, or gives no multiple or fraction."""
    graph, window = whole_graph(source, {name: given}, host_device()), given.shape[2:]
    _outputs(graph, 1, WindowLayout.of(window, WindowOptions(window)), NO_DECISION)
    return graph


def _check_fixed(source: SourceGraph, name: str, window: Extents) -> None:
    shape = source.inputs[name].shape or ()
    fixed = tuple(w if not isinstance(n, int) else n for n, w in zip(shape[2:], window, strict=True))
    if fixed != window:
        raise BrickError(f"windows of {text_of(window)}: the network takes {text_of(fixed)}: give that as the window")


def _outputs(graph: Graph, images: int, layout: WindowLayout, decision: Decision) -> dict[str, BlendedOutput]:
    found = {}
    for name in graph.outputs:
        kind = graph.types[name]
        if kind.dtype.kind != "f":
            raise BrickError(
                f"the output '{name}' holds {kind.dtype}, of which there are no means: leave the last step out of the "
                "model, and give --argmax or --threshold"
            )
        if kind.rank < 3:
            raise BrickError(f"the output '{name}' {kind} has no rows to put together: leave the window out")
        scaled = scaled_layout(name, layout, kind.shape[2:])
        whole = TensorType((images, kind.shape[1], *scaled.image), kind.dtype)
        found[name] = BlendedOutput(kind, whole, decision.of_type(whole), scaled)
    return found


def _held_bytes(given: TensorType, layout: WindowLayout, outputs: dict[str, BlendedOutput]) -> int:
    """Bytes of the rows that are held of input and outputs."""
    rows = given.shape[1] * layout.window[0] * math.prod(layout.padded[1:]) * given.dtype.itemsize
    return rows + sum(BlendedRows.nbytes(o.layout, o.channels, o.sums.itemsize) for o in outputs.values())


def _writing(outputs: dict[str, BlendedOutput], decision: Decision) -> int:
    """Bytes that writers may hold, about."""
    return sum(
        WRITER_BYTES + COPIES * o.finished_bytes + decision.nbytes(o.finished_bytes // o.written.dtype.itemsize)
        for o in outputs.values()
    )


def _memory(tasks: TaskGraph, threads: int, held: int, buffers: int) -> StreamMemory:
    """What a run will hold; what this process has now is known."""
    one = project(tasks, threads)
    return StreamMemory(
        runtime=resident_bytes(),
        constants=one.constants,
        persistent=held + one.io,
        arena=one.arena,
        scratch=one.scratch + threads * WORKSPACE,
        tables=one.tables,
        buffers=buffers,
    )


def _check(layout: WindowLayout, limit: int, needed: int) -> None:
    if needed > limit:
        raise BrickError(
            f"{limit / MIB:.0f} MiB of memory are not enough for windows of {text_of(layout.window)}, which take "
            f"{-(-needed // MIB)} MiB: raise --max-memory to {-(-needed // MIB) + 8}MiB, or take smaller windows"
        )


def text_of(window: Extents) -> str:
    """`256x256`."""
    return "x".join(map(str, window))
