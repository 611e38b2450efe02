"""The reference engine: every brick in NumPy, from the operators' definitions, in the order of the task graph.

Tensors are plain here whatever their layout, since layouts do not change values. It is slow; the results of the other
engines are compared with its.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from brickrt.graph.errors import last_resort
from brickrt.ops.base import Slab
from brickrt.ops.types import Boxes
from brickrt.runtime.lowering.task_graph import Steps, TaskGraph
from brickrt.runtime.program_protocol import Cancelled, Counts


class ReferenceProgram:
    """Runs a task graph brick by brick on the caller's thread; a padded brick keeps its intermediates in own slabs."""

    threads = 1

    def __init__(self, tasks: TaskGraph, constants: dict[str, np.ndarray] | None = None) -> None:
        """Takes over `constants`, values by name; without them the graph's are used."""
        self.tasks, self.notes = tasks, dict[str, str]()
        self._constants = dict(tasks.plan.graph.constants) if constants is None else constants
        self._calls = _calls(tasks)
        self._cancelled = False

    @property
    def constant_bytes(self) -> int:
        """Memory of the constants."""
        return sum(a.nbytes for a in self._constants.values())

    @property
    def working_bytes(self) -> int:
        """Memory of all nodes' outputs, as if none were in scratch."""
        graph = self.tasks.plan.graph
        return sum(graph.out(node).nbytes for node in graph.nodes)

    @property
    def held(self) -> dict[int, int]:
        """See `Program`."""
        return {id(self): self.constant_bytes + self.working_bytes}

    def run(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], events: list[np.ndarray] | None = None
    ) -> Counts:
        """See `Program`."""
        graph = self.tasks.plan.graph
        tensors = dict(self._constants) | dict(zip(graph.inputs, inputs, strict=True))
        tensors |= dict(zip(graph.outputs, outputs, strict=True))
        for name, allocation in self.tasks.allocations.items():
            if allocation.kind == "arena":
                tensors[name] = np.empty(graph.types[name].shape, graph.types[name].dtype)
        for task in range(len(self._calls)):
            if self._cancelled:
                self._cancelled = False
                raise Cancelled
            if events:
                events[0][task, :2] = task, time.monotonic_ns()
            self._task(task, tensors)
            if events:
                events[0][task, 2] = time.monotonic_ns()
        n = len(self._calls)
        return Counts(n, n, 0, 0)

    def cancel(self) -> None:
        """See `Program`."""
        self._cancelled = True

    def _task(self, task: int, tensors: dict[str, np.ndarray]) -> None:
        local: dict[str, Slab] = {}
        for steps, k in self._calls[task]:
            self._step(steps, k, tensors, local)

    def _step(self, steps: Steps, k: int, tensors: dict[str, np.ndarray], local: dict[str, Slab]) -> None:
        graph = self.tasks.plan.graph
        node, box = graph.nodes[steps.node], steps.boxes[k]
        ins, out = graph.ins(node), graph.out(node)
        regions = [node.op.region(i, box, ins, out) for i in range(len(node.inputs))]
        slabs = [self._slab(name, region, tensors, local) for name, region in zip(node.inputs, regions, strict=True)]
        with last_resort(lambda: f"computing {node.name}"):
            value = node.op.evaluate(box, slabs, ins, out)
        if node.output in steps.origins:
            band = Slab(value, tuple(int(v) for v in box.lo[0]))
            local[node.output] = _joined(local.get(node.output), band, steps.origins[node.output][k])
        else:
            tensors[node.output][box.slices()] = value

    def _slab(self, name: str, region: Boxes, tensors: dict[str, np.ndarray], local: dict[str, Slab]) -> Slab:
        """Just the region, so that a wrong region map shows in the results; all that is held of a padded brick's own
        tensors."""
        if name in self.tasks.inplace_slices:
            part = self.tasks.inplace_slices[name]
            slab = self._slab(part.source, part.in_source(region), tensors, local)
            return Slab(slab.array, tuple(o - s for o, s in zip(slab.origin, part.start, strict=True)))
        if name in local:
            return local[name]
        if name not in tensors and not region.volumes[0]:
            dtype = self.tasks.plan.graph.types[name].dtype
            return Slab(np.empty(region.extents[0], dtype), tuple(region.lo[0].tolist()))
        if name not in tensors:
            root = tensors[self.tasks.root(name)]
            tensors[name] = root.reshape(self.tasks.plan.graph.types[name].shape)
        return Slab(tensors[name][region.slices()], tuple(int(v) for v in region.lo[0]))


def _joined(before: Slab | None, band: Slab, origin: np.ndarray) -> Slab:
    """The next band of a tensor behind what its storage, from `origin` on, still holds of the bands before."""
    if before is None:
        return band
    axis = next(d for d, (a, b) in enumerate(zip(before.origin, band.origin, strict=True)) if a != b)
    start = max(before.origin[axis], int(origin[axis]))
    shape = list(band.array.shape)
    shape[axis] += band.origin[axis] - start
    unread = np.nan if band.array.dtype.kind == "f" else 0
    joined = np.full(shape, unread, band.array.dtype)
    for slab in (before, band):
        rows = range(max(start, slab.origin[axis]), slab.origin[axis] + slab.array.shape[axis])
        if rows:
            to = (slice(None),) * axis + (slice(rows.start - start, rows.stop - start),)
            joined[to] = slab.array[(slice(None),) * axis + (slice(rows.start - slab.origin[axis], None),)]
    return Slab(joined, (*before.origin[:axis], start, *before.origin[axis + 1 :]))


def _calls(tasks: TaskGraph) -> list[list[tuple[Steps, int]]]:
    """Per task, in order: its steps and which of their boxes."""
    calls: list[list[tuple[Steps, int]]] = [[] for _ in range(len(tasks))]
    positions: list[list[int]] = [[] for _ in range(len(tasks))]
    for steps in tasks.steps:
        for k, task in enumerate(steps.tasks.tolist()):
            calls[task].append((steps, k))
            positions[task].append(int(steps.positions[k]))
    return [[mine[i] for i in np.argsort(order)] for mine, order in zip(calls, positions, strict=True)]
