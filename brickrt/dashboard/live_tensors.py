"""What stored tensors hold at a moment of a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from brickrt.runtime.lowering.task_graph import TaskGraph


@dataclass(frozen=True, eq=False)
class LiveTensors:
    """Per tensor of the arena: its bytes, the first task that writes it, and the last that touches it.

    First and last are by number, which is the order of running but for what workers pass over.
    """

    nbytes: np.ndarray
    first: np.ndarray
    last: np.ndarray

    @staticmethod
    def of(tasks: TaskGraph) -> LiveTensors:
        graph = tasks.plan.graph
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for steps in tasks.steps:
            if not len(steps.tasks):
                continue
            node, low, high = graph.nodes[steps.node], int(steps.tasks.min()), int(steps.tasks.max())
            root = tasks.root(node.output)
            first[root] = min(first.get(root, low), low)
            for name in (root, *map(tasks.root, node.inputs)):
                last[name] = max(last.get(name, high), high)
        stored = [name for name in first if tasks.places[name].kind == "arena"]
        sizes = [tasks.places[name].nbytes for name in stored]
        columns = sizes, [first[name] for name in stored], [last[name] for name in stored]
        return LiveTensors(*(np.array(column, np.int64) for column in columns))

    def live(self, states: np.ndarray) -> int:
        """Bytes of the tensors that are written and not yet read for the last time."""
        alive = (states[self.first] > 0) & (states[self.last] < 2)
        return int(self.nbytes[alive].sum())
