"""Modelled bytes that a task graph moves per memory level: its accesses, brick by brick, through simulated caches."""

from __future__ import annotations

from collections import Counter

import numpy as np

from brickrt.ops.types import Boxes
from brickrt.plan.geometry.bricks import row_offsets
from brickrt.runtime.analysis.cache_simulator import Locality, Pieces, simulate
from brickrt.runtime.analysis.cut_grid import CutGrid
from brickrt.runtime.lowering.inplace_slices import resolve
from brickrt.runtime.lowering.task_graph import Steps, TaskGraph

MOST_ACCESSES = 3_000_000  # that are simulated; of more, those of a part of all pieces
LEAST_HELD_PIECES = 40  # each with those that it stands for, for a level's figures to be about right
FEW_PIECES = 64  # of a tensor, of which none is left out: weights, small images
AT_A_TIME = 4_000_000  # accesses that are looked at together
Log = list[tuple[str, Boxes, np.ndarray]]  # tensor, boxes of it, and the task that touches each


def locality(tasks: TaskGraph) -> Locality:
    """Figures of the tasks in their order. A piece is a part of a stored tensor that tasks touch as a whole.

    Of graphs that touch more than `MOST_ACCESSES` pieces, some pieces of large tensors stand for all of them, drawn by
    chance, the same in each run (after SHARDS, Waldspurger et al., FAST 2015). So all tasks count, however many they
    are; levels that are too small for such figures are left out.
    """
    model, device = _Pieces(tasks), tasks.plan.device
    sizes, stands_for = model.sizes, model.drawn(MOST_ACCESSES)
    reads, writes = model.csr(model.reads, stands_for > 0), model.csr(model.writes, stands_for > 0)
    coarsest = float((sizes * stands_for)[stands_for > 1].max(initial=0.0))
    levels = {"l2": device.l2, device.shared[0]: device.shared[1]}
    levels = {name: size for name, size in levels.items() if size >= LEAST_HELD_PIECES * coarsest}
    return simulate(np.arange(len(tasks)), reads, writes, sizes, levels, stands_for)


class _Pieces:
    """Numbers the pieces of all stored tensors, and lists who reads and writes them."""

    def __init__(self, tasks: TaskGraph) -> None:
        self.tasks, self.graph = tasks, tasks.plan.graph
        self.reads: Log = []
        self.writes: Log = []
        partial = {k for subgraph in tasks.plan.subgraphs for k in subgraph.partial_reductions}
        for steps in tasks.steps:
            self._write(steps)
            if steps.node not in partial:  # those read what their own tasks have just written
                self._read(steps)
        self.grids = self._cut()
        counts = [len(grid) for grid in self.grids.values()]
        self.first = dict(zip(self.grids, np.cumsum([0, *counts]).tolist(), strict=False))
        items = {name: self.graph.types[name].dtype.itemsize for name in self.grids}
        sizes = [grid.volumes * items[name] for name, grid in self.grids.items()]
        self.sizes = np.concatenate([np.zeros(0, np.int64), *sizes])

    def _write(self, steps: Steps) -> None:
        name = self.graph.nodes[steps.node].output
        if self._stored(name) and len(steps.boxes):
            self.writes.append((name, steps.boxes, steps.tasks))

    def _read(self, steps: Steps) -> None:
        node = self.graph.nodes[steps.node]
        for i, name in enumerate(node.inputs):
            if self._stored(name):
                boxes = node.op.region(i, steps.boxes, self.graph.ins(node), self.graph.out(node))
                root, boxes = self._in_root(name, boxes)
                self.reads.append((root, boxes, steps.tasks))

    def _stored(self, name: str) -> bool:
        allocation = self.tasks.allocations.get(self.tasks.root(name))
        return allocation is None or allocation.kind != "scratch"

    def _cut(self) -> dict[str, CutGrid]:
        """Each tensor cut wherever a box begins or ends that is read or written."""
        boxes: dict[str, list[Boxes]] = {}
        for name, some, _ in (*self.writes, *self.reads):
            boxes.setdefault(name, []).append(some)
        return {name: CutGrid.of(self.graph.types[name].shape, some) for name, some in boxes.items()}

    def _in_root(self, name: str, boxes: Boxes) -> tuple[str, Boxes]:
        """The tensor in whose storage another lies, and where boxes of that are in it."""
        while name in self.tasks.aliases:
            if name in self.tasks.inplace_slices:
                name, boxes = resolve(self.tasks.inplace_slices, name, boxes)
            else:
                view = self.graph.nodes[self.graph.producers[name]]
                boxes = view.op.region(0, boxes, self.graph.ins(view), self.graph.out(view))
                (name,) = view.inputs
        return name, boxes

    def drawn(self, most: int) -> np.ndarray:
        """For how many pieces each stands, itself included, and 0 for those that others stand for, [pieces]: such that
        there are about `most` accesses of the others, where there are tensors of many pieces."""
        counts: Counter[str] = Counter()
        for name, boxes, _ in (*self.reads, *self.writes):
            counts[name] += int(self.grids[name].touched(boxes).sum())
        stands_for = np.ones(len(self.sizes))
        many = [name for name in counts if len(self.grids[name]) > FEW_PIECES]
        left = most - sum(n for name, n in counts.items() if name not in many)
        part = max(left, most // 10) / max(1, sum(counts[name] for name in many))
        if part < 1:
            for name in many:
                first, n = self.first[name], len(self.grids[name])
                kept, nbytes = _drawn(first, n, max(part, FEW_PIECES / n)), self.sizes[first : first + n]
                stands_for[first : first + n] = np.where(kept, nbytes.sum() / max(1, nbytes[kept].sum()), 0.0)
        return stands_for

    def csr(self, log: Log, part: np.ndarray) -> Pieces:
        """The log by task, of the pieces in `part` [pieces]."""
        touched = [self._touched(name, boxes, tasks, part) for name, boxes, tasks in log]
        empty = np.zeros(0, np.int64)
        tasks, pieces = (np.concatenate([empty, *(each[k] for each in touched)]).astype(np.int64) for k in (0, 1))
        order = np.argsort(tasks, kind="stable")
        return Pieces(row_offsets(np.bincount(tasks, minlength=len(self.tasks))), pieces[order])

    def _touched(self, name: str, boxes: Boxes, tasks: np.ndarray, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(task, piece) of the pieces in `part`, found for so many boxes at a time that memory has room for all."""
        grid, found = self.grids[name], [np.zeros((2, 0), np.int64)]
        ends = np.searchsorted(np.cumsum(grid.touched(boxes)) // AT_A_TIME, np.arange(1, len(boxes)), "left")
        for rows in np.split(np.arange(len(boxes)), np.unique(ends)):
            offsets, bricks = grid.covering(Boxes(boxes.lo[rows], boxes.hi[rows]))
            pieces = self.first[name] + bricks
            kept = part[pieces]
            found.append(np.stack([np.repeat(tasks[rows], np.diff(offsets))[kept], pieces[kept]]))
        touched, pieces = np.concatenate(found, axis=1)
        return touched, pieces


def _drawn(first: int, n: int, part: float) -> np.ndarray:
    """About a part of the n numbers from `first` on, [n]: neighbours are drawn by chance, as what lies between two
    accesses to one is to say how much would lie there. The first number is always drawn."""
    drawn = np.random.default_rng(first).random(n) < part
    drawn[:1] = True
    return drawn
