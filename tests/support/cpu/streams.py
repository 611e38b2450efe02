"""Networks that run as a stream of bands, in memory that is overwritten before every band."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from brickrt import load
from brickrt.ops.types import Shape, TensorType
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import Plan
from brickrt.plan.stream.stream_plan import StreamPlan, StreamPlanner
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.cpu.worker_program import WorkerProgram
from brickrt.runtime.engines import choose_engine
from brickrt.runtime.lowering.arena import view_aliases
from brickrt.runtime.lowering.inplace_slices import find_inplace_slices
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.stream.stream_planning import whole_graph
from brickrt.runtime.stream.stream_program import StreamProgram
from brickrt.runtime.stream.sweep_run import Files

Arrays = Mapping[str, np.ndarray]


def plan_of(model: onnx.ModelProto, exact: bool = True, threads: int = 2) -> Plan:
    """The plan that an in-core run has."""
    source = load(model)
    pipeline = Pipeline(choose_engine("cpu"), PlanOptions(exact=exact), threads)
    types = {name: TensorType(tuple(info.shape), info.dtype) for name, info in source.inputs.items()}
    return pipeline.plan(whole_graph(source, types, pipeline.engine.spec))


def planner_of(plan: Plan) -> StreamPlanner:
    """Raises BrickError where the plan is not run band by band."""
    return StreamPlanner.of(plan, find_inplace_slices(plan), view_aliases(plan))


def run_stream(stream: StreamPlan, inputs: Arrays, threads: int) -> dict[str, np.ndarray]:
    """The outputs. All memory but the constants is filled with NaN at first, and what a band has to itself before each
    band. Of some streams all programs are there at once, of others few at a time."""
    graph, held = stream.plan.graph, (None, 2, 4)[stream.rows % 3]
    program = StreamProgram(stream, host_isa(choose_engine("cpu").spec), threads, graph.constants, held=held)
    program.memory[:] = 255
    at = program._programs.at
    program._programs.at = lambda place: _Forgetful(at(place))
    kinds = {name: graph.types[name] for name in graph.outputs}
    outputs = {name: np.full(kind.shape, 77, kind.dtype) for name, kind in kinds.items()}
    sources = {name: ArraySource(inputs[name]) for name in graph.inputs}
    spills = {name: ArraySpill(shape) for name, shape in stream.spill_shapes().items()}
    program.run(Files(sources, {name: ArraySink(array) for name, array in outputs.items()}, None, spills))
    assert all(spill.released for spill in spills.values())
    return outputs


class ArraySource:
    """Reads an array, or anything that is cut by slices."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def read(self, lo: tuple[int, ...], out: np.ndarray) -> None:
        out[...] = self.array[tuple(slice(a, a + n) for a, n in zip(lo, out.shape, strict=True))]


class ArraySink:
    """Writes to an array, or anything that is set by slices."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def write(self, lo: tuple[int, ...], array: np.ndarray) -> None:
        self.array[tuple(slice(a, a + n) for a, n in zip(lo, array.shape, strict=True))] = array


class ArraySpill:
    """The bytes of a spilled tensor, in memory; which of them were written."""

    def __init__(self, shape: Shape) -> None:
        self.bytes, self.written, self.released = np.zeros(shape, np.uint8), np.zeros(shape, bool), False

    def write(self, lo: Shape, array: np.ndarray) -> None:
        here = tuple(slice(a, a + n) for a, n in zip(lo, array.shape, strict=True))
        assert not self.written[here].any()
        self.bytes[here], self.written[here] = array, True

    def read(self, lo: Shape, out: np.ndarray) -> None:
        here = tuple(slice(a, a + n) for a, n in zip(lo, out.shape, strict=True))
        assert self.written[here].all() and not self.released
        out[...] = self.bytes[here]

    def release(self) -> None:
        assert self.written.all() and not self.released
        self.released = True


class _Forgetful:
    """A program whose arena and scratch hold NaN when it starts."""

    def __init__(self, program: WorkerProgram) -> None:
        self.program = program

    def run(self, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> object:
        for lent in self.program._memory.working.free:
            for own in (lent.arena, *lent.scratch):
                own[:] = 255
        return self.program.run(inputs, outputs)


def random_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    infos = load(model).inputs
    return {name: rng.standard_normal(tuple(info.shape)).astype(info.dtype) for name, info in infos.items()}
