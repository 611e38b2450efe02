"""The constants of a program while it is built: each is given up as soon as nothing is left to read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from brickrt.graph.ir import Graph
from brickrt.runtime.lowering.task_graph import TaskGraph


class ConstantValues(Protocol):
    """Values of constants by name, while programs are built. Of several programs the kernels of a node may pack them in
    several ways; then the values stay (`stay`)."""

    stay: bool

    def __getitem__(self, name: str, /) -> np.ndarray: ...

    def is_shared(self, name: str, /) -> bool:
        """Whether several nodes read a constant, or one of them does so several times."""
        ...

    def done(self, name: str, /) -> None:
        """One reader has its packed copy."""
        ...


class OwnedConstants:
    """Holds the values, by name, in a dictionary that is the program's own: packed copies are what stays."""

    stay = False

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


class KeptConstants:
    """Values that stay: the bands of a plan read the same constants, each in a program of its own."""

    stay = True

    def __init__(self, graph: Graph, values: Mapping[str, np.ndarray]) -> None:
        self._values = values
        readers = Counter(name for node in graph.nodes for name in node.inputs if name in graph.constants)
        self._shared = {name for name, count in readers.items() if count > 1}

    def __getitem__(self, name: str, /) -> np.ndarray:
        return self._values[name]

    def is_shared(self, name: str, /) -> bool:
        """See `ConstantValues`."""
        return name in self._shared

    def done(self, name: str, /) -> None:
        """See `ConstantValues`."""
