"""What tasks are called: the ONNX nodes they compute, and the brick of the output."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brickrt.runtime.lowering.task_graph import TaskGraph

SHOWN_NAMES = 3  # of nodes in a label; the rest is counted


@dataclass(frozen=True, eq=False)
class Labels:
    """Names of the tasks of one graph."""

    tasks: TaskGraph

    @cached_property
    def nodes(self) -> list[list[str]]:
        """Per subgraph the ONNX nodes it stands for."""
        plan = self.tasks.plan
        return [plan.ops(subgraph) for subgraph in plan.subgraphs]

    @cached_property
    def subgraphs(self) -> list[str]:
        """Per subgraph a short name: its first ONNX nodes."""
        return [shorten(names) for names in self.nodes]

    @cached_property
    def _last_step(self) -> tuple[np.ndarray, np.ndarray]:
        """Per task, which of the graph's steps computes what leaves it, and the row there; −1 for joins."""
        which, row = (np.full(len(self.tasks), -1, np.int64) for _ in range(2))
        for number, steps in enumerate(self.tasks.steps):  # ascending positions: the last one stays
            which[steps.tasks], row[steps.tasks] = number, np.arange(len(steps.tasks))
        return which, row

    def output_boxes(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the boxes of a subgraph's output begin [n, d], and their tasks [n]; none for a join."""
        last = self.tasks.plan.subgraphs[number].nodes[-1]
        parts = [(s.boxes.lo, s.tasks) for s in self.tasks.steps if s.node == last and len(s.tasks)]
        if not parts:
            return np.zeros((0, 1), np.int64), np.zeros(0, np.int64)
        lo, owner = (np.concatenate(part) for part in zip(*parts, strict=True))
        return lo, owner

    @cached_property
    def _grids(self) -> dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        return {}

    def grid(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tasks of the bricks of a subgraph's output [n], and their row and column [n]: places along the last two
        dimensions that are cut. Bricks that differ in others share a place."""
        if number not in self._grids:
            boxes, owner = self.output_boxes(number)
            places = [np.unique(column, return_inverse=True)[1].reshape(-1) for column in boxes.T]
            cut = [at for at in places if at.max(initial=0) > 0][-2:]
            y, x = [np.zeros(len(owner), np.int64)] * (2 - len(cut)) + cut
            self._grids[number] = owner, y, x
        return self._grids[number]

    def brick(self, task: int) -> list[list[int]]:
        """[lo, hi] of the box of the task's output, one index per dimension."""
        which, row = (part[task] for part in self._last_step)
        if which < 0:
            return [[], []]
        boxes = self.tasks.steps[which].boxes
        return [boxes.lo[row].tolist(), boxes.hi[row].tolist()]


def shorten(names: list[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - SHOWN_NAMES
    return " + ".join(names[:SHOWN_NAMES]) + (f" + {more} more" if more > 0 else "")
