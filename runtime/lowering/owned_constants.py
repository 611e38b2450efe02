"""The constants of a program while it is built: each is given up as soon as nothing is left to read it."""

from __future__ import annotations

from collections import Counter

import numpy as np

from brickrt.runtime.lowering.task_graph import TaskGraph


class OwnedConstants:
    """Holds the values, by name, in a dictionary that is the program's own: packed copies are what stays."""

    def __init__(self, tasks: TaskGraph, values: dict[str, np.ndarray] | None = None) -> None:
        """Takes over `values`; without them, the graph's are used, which stay as they are."""
        graph = tasks.plan.graph
        self._values = dict(graph.constants) if values is None else values
        names = (name for steps in tasks.steps for name in graph.nodes[steps.node].inputs)
        self._left = Counter(name for name in names if name in graph.constants)
        self._shared = {name for name, readers in self._left.items() if readers > 1}

    def __getitem__(self, name: str) -> np.ndarray:
        return self._values[name]

    def is_shared(self, name: str) -> bool:
        """Whether several steps read a constant, or one of them does so several times."""
        return name in self._shared

    def done(self, name: str) -> None:
        """One reader has its packed copy: the value is dropped after the last."""
        self._left[name] -= 1
        if not self._left[name]:
            del self._values[name]
