"""Calls like an earlier one. What a network leaves in the caches is not Python's: everything that runs here, around it,
runs cold and takes ten times as long as it looks, so that what can be known beforehand is."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from brickrt.runtime import events
from brickrt.runtime.program_protocol import Program
from brickrt.runtime.session.execution import Signature, run_watched
from brickrt.runtime.session.report import StageRun
from brickrt.runtime.session.stage_cache import CompiledStage


class FastPath:
    """Calls with NumPy arrays of the names, shapes and types in `signature`, whose outputs one program computes.

    `running` has the programs under way, of all calls of a runtime; `observer` watches them.
    """

    def __init__(
        self,
        signature: Signature,
        compiled: CompiledStage,
        names: Sequence[str],
        running: list[Program],
        observer: events.Observer | None,
    ) -> None:
        assert compiled.program is not None
        graph = compiled.plan.graph
        self._signature, self._compiled, self._running, self._observer = signature, compiled, running, observer
        self._program = compiled.program
        given = [name for name, *_ in signature]
        self._read = [given.index(name) for name in graph.inputs]
        self._made = [(graph.types[name].shape, graph.types[name].dtype) for name in graph.outputs]
        self._outputs = [(name, graph.outputs.index(name)) for name in names]

    @staticmethod
    def possible(compiled: CompiledStage, names: Sequence[str]) -> bool:
        """Whether the program computes all outputs, and nothing is left to the host."""
        special = compiled.specialized
        return (
            compiled.program is not None and not special.host_nodes and set(names) <= set(compiled.plan.graph.outputs)
        )

    def taken(self, inputs: Mapping[str, Any]) -> list[np.ndarray] | None:
        """What the program reads, if the inputs are like those of the earlier call."""
        if not isinstance(inputs, dict) or len(inputs) != len(self._signature):
            return None
        found: list[np.ndarray] = []
        for name, kind, shape, dtype in self._signature:
            array = inputs.get(name)
            if not (isinstance(array, np.ndarray) and type(array) is kind):
                return None
            if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
                return None
            found.append(array)
        return [found[k] for k in self._read]

    def run(self, arrays: list[np.ndarray]) -> tuple[dict[str, np.ndarray], StageRun]:
        """The model's outputs by name."""
        started = time.perf_counter()
        made = [np.empty(shape, dtype) for shape, dtype in self._made]
        ran = StageRun(self._compiled)
        ran.counts = run_watched(self._program, arrays, made, self._running, self._observer)
        ran.run_ms = (time.perf_counter() - started) * 1e3
        return {name: made[k] for name, k in self._outputs}, ran
