"""What launches and tasks of a program compute, in words, for errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from brickrt.runtime.cuda.blueprint import Blueprint
from brickrt.runtime.cuda.groups.group_steps import OpSteps
from brickrt.runtime.lowering.task_graph import TaskGraph

MOST_NODES, MOST_CALLS = 4, 8  # of a launch, and of calls in a row, that are named


class LaunchNames:
    """Names nodes, kernels and bricks of launches, and of tasks by their numbers in the tables."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._tasks, self._launches, self._owner = blueprint.tasks, blueprint.launches, blueprint.owner
        self._order, self._layers = blueprint.tables.order, blueprint.calls.layers
        self._ends = np.cumsum([len(launch.tasks) for launch in self._launches])
        sources = list(blueprint.units.sources)
        self._kernels = [sources[unit].name for unit in blueprint.units.of]
        self._steps = _steps(blueprint)

    def launch(self, k: int) -> str:
        """Nodes, kernel and bricks of launch `k`."""
        if k in self._layers:
            layer, _ = self._layers[k]
            bricks = "" if len(self._launches[k].tasks) else f", {layer.form.tensors[0].dims[0]} bricks at once"
            return f"node '{self._steps[layer.steps][0]}', by cuDNN ({layer.form.kind}){bricks}"
        return f"{self._nodes(k)}, kernel {self._kernels[k]}, {self._bricks(k)}"

    def is_call(self, k: int) -> bool:
        """Whether a library computes launch `k`."""
        return k in self._layers

    def calls(self, which: Sequence[int]) -> str:
        """Launches of a library that follow one another."""
        if len(which) == 1:
            return self.launch(which[0])
        named = list(dict.fromkeys(f"'{self._steps[self._layers[k][0].steps][0]}'" for k in which))
        return f"one of {len(which)} calls of cuDNN, for {_listed('node', named, MOST_CALLS)}"

    def task(self, task: int) -> str:
        """Node and brick of a task."""
        found = self._box(task)
        return f"node '{found[0]}', brick {found[1]}" if found else "a join"

    def task_and_kernel(self, task: int) -> str:
        """The same, with the kernel; of a padded or fused brick all nodes."""
        k = int(np.searchsorted(self._ends, task, "right"))
        if self._launches[k].kind in ("bricks", "fused"):
            return f"{self._nodes(k)}, kernel {self._kernels[k]}, brick {self._first_box([task])}"
        return f"{self.task(task)}, kernel {self._kernels[k]}"

    def _nodes(self, k: int) -> str:
        named = list(
            dict.fromkeys(f"'{name}' ({op})" for name, op in (self._steps[i] for i in self._launches[k].steps))
        )
        return _listed("node", named, MOST_NODES)

    def _bricks(self, k: int) -> str:
        count, end = len(self._launches[k].tasks), int(self._ends[k])
        first, last = self._first_box(range(end - count, end)), self._first_box(range(end - 1, end - count - 1, -1))
        return f"brick {first}" if count == 1 else f"{count} bricks, {first} … {last}"

    def _first_box(self, tasks: Iterable[int]) -> str:
        return next((found[1] for found in map(self._box, tasks) if found), "")

    def _box(self, task: int) -> tuple[str, str] | None:
        """The last node that a task computes, and its box."""
        number, graph = int(self._owner[self._order[task]]), self._tasks.plan.graph
        for steps in reversed(self._tasks.steps):
            for k in np.flatnonzero(steps.tasks == number)[-1:].tolist():
                ends = ", ".join(f"{a}:{b}" for a, b in zip(steps.boxes.lo[k], steps.boxes.hi[k], strict=True))
                return graph.nodes[steps.node].name, f"[{ends}]"
        return None


def _listed(what: str, names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{what}{'s' if len(names) > 1 else ''} {', '.join(names[:most])}{more}"


def _steps(blueprint: Blueprint) -> list[tuple[str, str]]:
    """Node and operator of all steps, of the graph's and then of groups'."""
    tasks: TaskGraph = blueprint.tasks
    found = [tasks.plan.graph.nodes[steps.node] for steps in tasks.steps]
    named = [(node.name, node.op.name) for node in found]
    for extra in blueprint.extra:
        node = extra.node if isinstance(extra, OpSteps) else tasks.plan.graph.nodes[extra.steps.node]
        named.append((node.name, extra.op.name if isinstance(extra, OpSteps) else node.op.name))
    return named
