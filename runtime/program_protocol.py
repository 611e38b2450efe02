"""The protocol of programs, which engines make of task graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, get_args

import numpy as np

from brickrt.runtime.counts import Cancelled, Counts
from brickrt.runtime.lowering.task_graph import TaskGraph

__all__ = ["LAUNCHES", "Cancellable", "Cancelled", "Counts", "LaunchMode", "Program"]

LaunchMode = Literal["auto", "streams", "dynamic", "graph", "persistent"]  # how a GPU runs plans
LAUNCHES: tuple[str, ...] = get_args(LaunchMode)


class Cancellable(Protocol):
    """A run, or what runs again and again."""

    def cancel(self) -> None:
        """Ends the run under way, or else the next one, after what is in progress. From any thread."""
        ...


class Program(Cancellable, Protocol):
    """One task graph, ready to run; `run` may be called from any thread."""

    tasks: TaskGraph

    @property
    def threads(self) -> int:
        """Workers, whose events fill a buffer each."""
        ...

    @property
    def constant_bytes(self) -> int:
        """Memory of the constants, as the engine keeps them."""
        ...

    @property
    def working_bytes(self) -> int:
        """Memory that the program holds besides constants, inputs and outputs."""
        ...

    @property
    def held(self) -> Mapping[int, int]:
        """Bytes that it holds between runs: a number for each thing that it holds, by which programs share it."""
        ...

    @property
    def notes(self) -> Mapping[str, str]:
        """What the engine could not use, by name, and why."""
        ...

    def run(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], events: list[np.ndarray] | None = None
    ) -> Counts:
        """Computes `outputs`, written in place, from `inputs`: C-contiguous arrays of the graph's types, in its order.

        `events` are buffers of `events.buffers` to fill in. Raises Cancelled after `cancel`.
        """
        ...
