"""The protocol of programs, which engines make of task graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, get_args

import numpy as np

from brickrt.graph.errors import Interrupted
from brickrt.runtime.lowering.task_graph import TaskGraph

LaunchMode = Literal["auto", "streams", "dynamic", "graph", "persistent"]  # how a GPU runs plans
LAUNCHES: tuple[str, ...] = get_args(LaunchMode)


class Cancelled(Interrupted):
    """A run was ended early by `Program.cancel`; its outputs are not complete."""


class Counts(NamedTuple):
    """What the workers counted in one run: tasks run; of these, those that were the first their worker looked at; tasks
    before which it found none ready, and waited; and tasks for which it passed over others that were not ready."""

    tasks: int
    complete_first: int
    waits: int
    revisits: int


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
