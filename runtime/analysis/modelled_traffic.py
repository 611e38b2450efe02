"""Modelled bytes that a task graph moves per memory level: its accesses, brick by brick, through simulated caches."""

from __future__ import annotations

import numpy as np

from brickrt.ops.types import Boxes, Shape
from brickrt.plan.geometry.bricks import BrickGrid, row_offsets
from brickrt.runtime.analysis.cache_simulator import Locality, Pieces, simulate
from brickrt.runtime.lowering.inplace_slices import resolve
from brickrt.runtime.lowering.task_graph import Steps, TaskGraph

MOST_TASKS = 50_000  # of larger graphs, the first so many
MOST_ACCESSES = 1_000_000  # and of those, the first that touch so many pieces: what reads a view touches all of it
Log = list[tuple[str, Boxes, np.ndarray]]  # tensor, boxes of it, and the task that touches each


def locality(tasks: TaskGraph) -> Locality:
    """Figures of the tasks in their order. A piece is a brick of a stored tensor, or what a brick reads of an input."""
    model = _Pieces(tasks)
    n = model.affordable(min(len(tasks), MOST_TASKS))
    reads, writes = model.csr(model.reads, n), model.csr(model.writes, n)
    device = tasks.plan.device
    levels = {"l2": device.l2, device.shared[0]: device.shared[1]}
    return simulate(np.arange(n), reads, writes, np.asarray(model.sizes, np.int64), levels)


class _Pieces:
    """Numbers the bricks of all stored tensors, and lists who reads and writes them."""

    def __init__(self, tasks: TaskGraph) -> None:
        self.tasks, self.graph = tasks, tasks.plan.graph
        self.first: dict[str, int] = {}
        self.grids: dict[str, BrickGrid] = {}
        self.sizes: list[int] = []
        self.reads: Log = []
        self.writes: Log = []
        for steps in tasks.steps:
            self._write(steps)
            self._read(steps)

    def _write(self, steps: Steps) -> None:
        name = self.graph.nodes[steps.node].output
        if self._stored(name) and len(steps.boxes):
            self._number(name, tuple(int(e) for e in np.maximum(steps.boxes.extents.max(axis=0), 1)))
            self.writes.append((name, steps.boxes, steps.tasks))

    def _read(self, steps: Steps) -> None:
        node = self.graph.nodes[steps.node]
        for i, name in enumerate(node.inputs):
            if not self._stored(name):
                continue
            boxes = node.op.region(i, steps.boxes, self.graph.ins(node), self.graph.out(node))
            name, boxes = resolve(self.tasks.inplace_slices, name, boxes)
            root = self.tasks.root(name)
            if root != name:
                boxes = Boxes.whole(self.graph.types[root].shape, len(boxes))
            if root not in self.first:
                self._number(root, _pieces_read(self.graph.types[root].shape, boxes))
            self.reads.append((root, boxes, steps.tasks))

    def _stored(self, name: str) -> bool:
        allocation = self.tasks.allocations.get(self.tasks.root(name))
        return allocation is None or allocation.kind != "scratch"

    def _number(self, name: str, brick: tuple[int, ...]) -> None:
        grid = BrickGrid(self.graph.types[name].shape, brick)
        self.first[name], self.grids[name] = len(self.sizes), grid
        self.sizes.extend((grid.boxes().volumes * self.graph.types[name].dtype.itemsize).tolist())

    def affordable(self, n: int) -> int:
        """How many of the first `n` tasks, one at least, touch no more than `MOST_ACCESSES` pieces together."""
        accesses = np.zeros(len(self.tasks), np.int64)
        for name, boxes, tasks in (*self.reads, *self.writes):
            np.add.at(accesses, tasks, self.grids[name].touched(boxes))
        within = int(np.searchsorted(np.cumsum(accesses[:n]), MOST_ACCESSES, side="right"))
        return min(n, max(1, within))

    def csr(self, log: Log, n: int) -> Pieces:
        """The log by task, for the first `n` tasks."""
        touched = [self._touched(name, boxes, tasks, n) for name, boxes, tasks in log]
        empty = np.zeros(0, np.int64)
        tasks, pieces = (np.concatenate([empty, *(part[k] for part in touched)]).astype(np.int64) for k in (0, 1))
        order = np.argsort(tasks, kind="stable")
        return Pieces(row_offsets(np.bincount(tasks, minlength=n)), pieces[order])

    def _touched(self, name: str, boxes: Boxes, tasks: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """(task, piece) for the tasks below `n`."""
        inside = tasks < n
        offsets, bricks = self.grids[name].covering(Boxes(boxes.lo[inside], boxes.hi[inside]))
        return np.repeat(tasks[inside], np.diff(offsets)), self.first[name] + bricks


def _pieces_read(shape: Shape, boxes: Boxes) -> Shape:
    """Along each axis as many pieces as there are places where the boxes that are read begin."""
    starts = [max(1, len(np.unique(lo))) for lo in boxes.lo.T]
    return tuple(max(1, -(-extent // n)) for extent, n in zip(shape, starts, strict=True))
