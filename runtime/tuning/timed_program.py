"""A program that is run to be timed: as a whole, and each subgraph in it."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from brickrt.runtime import events
from brickrt.runtime.program_protocol import Program
from brickrt.runtime.tuning.task_seconds import seconds_by_subgraph


class Sample(NamedTuple):
    """Seconds of one run, and of each subgraph in it, float64 [subgraphs]."""

    whole: float
    parts: np.ndarray


class TimedProgram:
    """A program of the host with made-up inputs: floats are normally distributed, all else is zero."""

    def __init__(self, program: Program) -> None:
        graph, rng = program.tasks.plan.graph, np.random.default_rng(0)
        kinds = [graph.types[name] for name in graph.inputs]
        self._program = program
        self._inputs = [np.zeros(kind.shape, kind.dtype) for kind in kinds]
        for array in self._inputs:
            if array.dtype.kind == "f":
                array[...] = rng.standard_normal(array.shape, np.float32)
        self._outputs = [np.empty(graph.types[name].shape, graph.types[name].dtype) for name in graph.outputs]
        self._events = events.buffers(len(program.tasks), program.threads)

    def sample(self) -> Sample:
        """Runs it once."""
        for rows in self._events:
            rows.fill(0)
        began = time.perf_counter()
        self._program.run(self._inputs, self._outputs, self._events)
        whole = time.perf_counter() - began
        return Sample(whole, seconds_by_subgraph(self._program.tasks, events.TaskEvents(self._events)))
