"""Calls like an earlier one. What a network leaves in the caches is not Python's: everything that runs here, around it,
runs cold and takes ten times as long as it looks, so that what can be known beforehand is."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from brickrt.graph.errors import last_resort
from brickrt.graph.onnx_import.shared_arrays import shared_array
from brickrt.runtime import events
from brickrt.runtime.arrays import DeviceArrays, on_device
from brickrt.runtime.cpu.memory import output_array
from brickrt.runtime.execution.execution import run_watched
from brickrt.runtime.execution.given_outputs import check_given
from brickrt.runtime.execution.report import StageRun
from brickrt.runtime.execution.stage_cache import CompiledStage
from brickrt.runtime.program_protocol import Cancellable

COMPARED_BYTES = 1 << 12
"""Bytes of an input that decides what runs which are compared in each call."""


def fast_path(
    given: Mapping[str, Any],
    stages: Sequence[CompiledStage],
    names: Sequence[str],
    running: list[Cancellable],
    observer: events.Observer | None,
    arrays: DeviceArrays | None,
) -> FastPath | None:
    """The fast path of calls like one with these inputs, which ran these stages; None where there is none. `observer`
    is told of nodes on the host, so that with it there are none before the program."""
    *before, last = stages
    looked_up = [] if not before else None if observer is not None or len(before) > 1 else lookups(before[0], given)
    if looked_up is None or not FastPath.possible(given, last, names):
        return None
    if not {*given, *(one.name for one in looked_up)}.issuperset(last.plan.graph.inputs):
        return None
    return FastPath(given, stages, looked_up, names, running, observer, arrays)


class Taken(NamedTuple):
    """What a program reads, and what it took to look some of it up."""

    arrays: list[Any]
    host_ms: float


@dataclass(frozen=True)
class TableRows:
    """Rows of a constant table that an input numbers: an embedding. `name` is the result's."""

    node: str
    name: str
    table: np.ndarray
    axis: int
    numbers: str


def lookups(stage: CompiledStage, given: Mapping[str, Any]) -> list[TableRows] | None:
    """What a stage does, where it does nothing but look up rows of constants that inputs number; else None."""
    special, found = stage.specialized, list[TableRows]()
    if stage.program is not None or special.same or not all(type(a) is np.ndarray for a in given.values()):
        return None
    for node in special.host_nodes:
        if node.op_type != "Gather" or node.domain:
            return None
        table, numbers = special.known.get(node.inputs[0]), given.get(node.inputs[1])
        if table is None or numbers is None or numbers.dtype.kind != "i" or table.dtype.kind not in "iufb":
            return None
        found.append(TableRows(node.name, node.outputs[0], table, node.attrs.get("axis", 0), node.inputs[1]))
    return found


class FastPath:
    """Calls with inputs of the names, shapes and types of an earlier call, whose outputs one program computes, after
    what is looked up.

    `given` are the inputs of that call: values that it was compiled for must be the same, too. `names` are the model's
    outputs; `arrays` makes outputs where inputs lie on a GPU.
    `running` has what is under way, of all calls of a runtime; `observer` watches it.
    """

    def __init__(
        self,
        given: Mapping[str, Any],
        stages: Sequence[CompiledStage],
        looked_up: Sequence[TableRows],
        names: Sequence[str],
        running: list[Cancellable],
        observer: events.Observer | None,
        arrays: DeviceArrays | None,
    ) -> None:
        *self._before, self._compiled = stages
        assert self._compiled.program is not None
        graph = self._compiled.plan.graph
        self._running, self._observer = running, observer
        self._program = self._compiled.program
        decided_by = frozenset().union(*(stage.decided_by for stage in stages))
        self._signature = [
            (name, type(array), array.shape, array.dtype, array.tobytes() if name in decided_by else None)
            for name, array in given.items()
        ]
        self._arrays = arrays if any(map(on_device, given.values())) else None
        order = [*given, *(one.name for one in looked_up)]  # what stages before know are constants of the last
        self._lookups = [(one.table, order.index(one.numbers), one.axis) for one in looked_up]
        self._nodes = [one.node for one in looked_up]
        self._read = [order.index(name) for name in graph.inputs]
        self._made = [graph.types[name] for name in graph.outputs]
        self._outputs = [(name, graph.outputs.index(name)) for name in names]

    @staticmethod
    def possible(given: Mapping[str, Any], compiled: CompiledStage, names: Sequence[str]) -> bool:
        """Whether the inputs are arrays of numbers, those whose values it was compiled for small and in the host's
        memory, and the program computes all outputs, so that nothing is left to the host."""
        if compiled.program is None or compiled.rest is not None or compiled.specialized.host_nodes:
            return False
        plain = all((type(a) is np.ndarray and a.dtype.kind not in "OUS") or on_device(a) for a in given.values())
        small = plain and not any(
            on_device(given[name]) or given[name].nbytes > COMPARED_BYTES for name in compiled.decided_by
        )
        return small and set(names) <= set(compiled.plan.graph.outputs)

    def taken(self, inputs: Mapping[str, Any]) -> Taken | None:
        """What the program reads, if the inputs are like those of the earlier call. Numbers of no row are left to the
        slow way, which says so."""
        if not isinstance(inputs, dict) or len(inputs) != len(self._signature):
            return None
        found: list[Any] = []
        for name, kind, shape, dtype, content in self._signature:
            array: Any = inputs.get(name)
            if kind is np.ndarray and type(array) is not kind and not on_device(array):
                array = shared_array(array)
            if type(array) is not kind or array.shape != shape or array.dtype != dtype:
                return None
            if kind is np.ndarray and not array.flags.c_contiguous:
                return None
            if content is not None and array.tobytes() != content:
                return None
            found.append(array)
        host_ms = 0.0
        if self._lookups:
            started = time.perf_counter()
            try:
                found += [np.asarray(table.take(found[k], axis)) for table, k, axis in self._lookups]
            except IndexError:
                return None
            host_ms = (time.perf_counter() - started) * 1e3
        return Taken([found[k] for k in self._read], host_ms)

    def run(
        self, taken: Taken, stream: Any = None, into: Mapping[str, np.ndarray] | None = None
    ) -> tuple[dict[str, Any], list[StageRun]]:
        """The model's outputs by name; those that `into` has an array for are written there."""
        started, given = time.perf_counter(), taken.arrays
        if self._arrays is not None:
            given = [self._arrays.view(array, stream) if on_device(array) else array for array in given]
        made = self._room(stream, into or {})
        ran = StageRun(self._compiled)
        more = {} if stream is None else {"stream": stream}
        ran.counts = run_watched(self._program, given, made, self._running, self._observer, **more)
        ran.run_ms = (time.perf_counter() - started) * 1e3
        each = taken.host_ms / max(1, len(self._nodes))
        nodes = dict.fromkeys(self._nodes, each)
        before = [StageRun(stage, host_ms=taken.host_ms, host_nodes=nodes) for stage in self._before]
        return {name: made[k] for name, k in self._outputs}, [*before, ran]

    def _room(self, stream: Any, into: Mapping[str, np.ndarray]) -> list[Any]:
        """Arrays for the program to write, the caller's among them."""
        arrays = self._arrays
        slots = {k: check_given(name, into[name], self._made[k]) for name, k in self._outputs if name in into}
        try:
            if arrays is not None:
                return [arrays.empty(kind, stream) for kind in self._made]
            return [
                slots[k] if k in slots else output_array(kind.shape, kind.dtype) for k, kind in enumerate(self._made)
            ]
        except MemoryError:
            with last_resort(lambda: f"making room for the outputs {', '.join(name for name, _ in self._outputs)}"):
                raise
