"""Calls like an earlier one. What a network leaves in the caches is not Python's: everything that runs here, around it,
runs cold and takes ten times as long as it looks, so that what can be known beforehand is."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from brickrt.graph.errors import last_resort
from brickrt.graph.onnx_import.shared_arrays import shared_array
from brickrt.runtime import events
from brickrt.runtime.arrays import DeviceArrays, on_device
from brickrt.runtime.execution.execution import run_watched
from brickrt.runtime.execution.given_outputs import check_given
from brickrt.runtime.execution.report import StageRun
from brickrt.runtime.execution.stage_cache import CompiledStage
from brickrt.runtime.program_protocol import Cancellable

COMPARED = 1 << 12
"""Bytes of an input that decides what runs which are compared in each call."""


class FastPath:
    """Calls with inputs of the names, shapes and types of an earlier call, whose outputs one program computes.

    `given` are the inputs of that call: values that it was compiled for must be the same, too. `names` are the model's
    outputs; `arrays` makes outputs where inputs lie on a GPU.
    `running` has what is under way, of all calls of a runtime; `observer` watches it.
    """

    def __init__(
        self,
        given: Mapping[str, Any],
        compiled: CompiledStage,
        names: Sequence[str],
        running: list[Cancellable],
        observer: events.Observer | None,
        arrays: DeviceArrays | None,
    ) -> None:
        assert compiled.program is not None
        graph = compiled.plan.graph
        self._compiled, self._running, self._observer = compiled, running, observer
        self._program = compiled.program
        self._signature = [
            (name, type(array), array.shape, array.dtype, array.tobytes() if name in compiled.decided_by else None)
            for name, array in given.items()
        ]
        self._arrays = arrays if any(map(on_device, given.values())) else None
        order = list(given)
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
            on_device(given[name]) or given[name].nbytes > COMPARED for name in compiled.decided_by
        )
        return small and set(names) <= set(compiled.plan.graph.outputs)

    def taken(self, inputs: Mapping[str, Any]) -> list[Any] | None:
        """What the program reads, if the inputs are like those of the earlier call."""
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
        return [found[k] for k in self._read]

    def run(
        self, given: list[Any], stream: Any = None, into: Mapping[str, np.ndarray] | None = None
    ) -> tuple[dict[str, Any], StageRun]:
        """The model's outputs by name; those that `into` has an array for are written there."""
        started = time.perf_counter()
        if self._arrays is not None:
            given = [self._arrays.view(array, stream) if on_device(array) else array for array in given]
        made = self._room(stream, into or {})
        ran = StageRun(self._compiled)
        more = {} if stream is None else {"stream": stream}
        ran.counts = run_watched(self._program, given, made, self._running, self._observer, **more)
        ran.run_ms = (time.perf_counter() - started) * 1e3
        return {name: made[k] for name, k in self._outputs}, ran

    def _room(self, stream: Any, into: Mapping[str, np.ndarray]) -> list[Any]:
        """Arrays for the program to write, the caller's among them."""
        arrays = self._arrays
        slots = {k: check_given(name, into[name], self._made[k]) for name, k in self._outputs if name in into}
        try:
            if arrays is not None:
                return [arrays.empty(kind, stream) for kind in self._made]
            return [slots[k] if k in slots else np.empty(kind.shape, kind.dtype) for k, kind in enumerate(self._made)]
        except MemoryError:
            with last_resort(lambda: f"making room for the outputs {', '.join(name for name, _ in self._outputs)}"):
                raise
