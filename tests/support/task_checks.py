"""What must hold of every task graph, whatever the order in which workers get to its tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from brickrt.graph.ir import Graph
from brickrt.ops.base import Slab
from brickrt.ops.types import Boxes
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import Plan, make_plan
from brickrt.runtime.lowering.inplace_slices import resolve
from brickrt.runtime.lowering.lower import lower
from brickrt.runtime.lowering.task_graph import Allocation, ScratchMoves, Steps, TaskGraph

SERVER = DeviceSpec(
    "two cores of a server", "cpu", "avx512", 2, 16, 32, 2**15, 2**20, 36 * 2**20, 2**34, 160.0,
    {"l2": 128.0, "l3": 50.0, "memory": 20.0}, tau=64,
)  # fmt: skip


class WaitingTasks(Protocol):
    """Task t waits for `deps[dep_offsets[t]:dep_offsets[t + 1]]`: a task graph's tasks, or those of a GPU's tables."""

    dep_offsets: np.ndarray
    deps: np.ndarray


def lowered(
    graph: Graph, strategy: str = "auto", device: DeviceSpec = SERVER, band: int | None = None, **options: Any
) -> TaskGraph:
    """The task graph; with `band` padded bricks are swept in bands of so many rows, whatever the planner wants."""
    plan = make_plan(graph, device, PlanOptions(strategy, **options))
    return lower((in_bands(plan, band) if band else plan).verify())


def in_bands(plan: Plan, rows: int) -> Plan:
    """The plan with its padded bricks swept in bands of so many rows."""
    subgraphs = []
    for s in plan.subgraphs:
        band = list(s.brick)
        if s.strategy == "padded":
            shape = plan.graph.out(plan.graph.nodes[s.nodes[-1]]).shape
            axis = next(a for a in (2, len(shape) - 2, 0) if a < len(shape) and (a == 2 or s.brick[a] < shape[a]))
            band[axis] = min(rows, band[axis])
        subgraphs.append(replace(s, band=tuple(band)))
    return replace(plan, subgraphs=tuple(subgraphs))


def with_values(graph: Graph, seed: int = 0) -> tuple[Graph, dict[str, np.ndarray]]:
    """The graph with small whole numbers as constants, and inputs for it: sums are exact in any order."""
    rng = np.random.default_rng(seed)

    def values(name: str) -> np.ndarray:
        return rng.integers(-2, 3, graph.types[name].shape).astype(graph.types[name].dtype)

    return replace(graph, constants={n: values(n) for n in graph.constants}), {n: values(n) for n in graph.inputs}


def needs(tasks: WaitingTasks) -> list[list[int]]:
    """The tasks that each task waits for."""
    return [tasks.deps[a:b].tolist() for a, b in zip(tasks.dep_offsets, tasks.dep_offsets[1:], strict=False)]


def ancestors(needs: Iterable[Iterable[int]]) -> list[int]:
    """Per task or launch those that are complete when it runs, as bits: all that it waits for, directly or not."""
    found: list[int] = []
    for waits in needs:
        mine = 0
        for d in waits:
            mine |= found[d] | 1 << d
        found.append(mine)
    return found


@dataclass(frozen=True)
class Touch:
    """One task reads or writes a box of a stored tensor."""

    task: int
    position: int
    tensor: str
    box: Boxes


def touches(tasks: TaskGraph) -> tuple[list[Touch], list[Touch]]:
    """All reads and writes of tensors outside scratch and constants, views and parts by what they lie in."""
    graph = tasks.plan.graph
    reads, writes = [], []

    def note(found: list[Touch], steps: Steps, name: str, boxes: Boxes) -> None:
        name, boxes = resolve(tasks.inplace_slices, name, boxes)
        if name in graph.constants or tasks.allocations[tasks.root(name)].kind == "scratch":
            return
        name, boxes = resolve(tasks.inplace_slices, name, boxes)
        root = tasks.root(name)
        if root != name:  # all of it, where anything is touched
            whole = Boxes.whole(graph.types[root].shape, len(boxes))
            boxes = Boxes(whole.lo, np.where((boxes.volumes > 0)[:, None], whole.hi, whole.lo))
        for k, task in enumerate(steps.tasks.tolist()):
            found.append(Touch(task, int(steps.positions[k]), root, boxes[k]))

    for steps in tasks.steps:
        node = graph.nodes[steps.node]
        note(writes, steps, node.output, steps.boxes)
        for i, name in enumerate(node.inputs):
            note(reads, steps, name, node.op.region(i, steps.boxes, graph.ins(node), graph.out(node)))
    return reads, writes


def overlap(a: Boxes, b: Boxes) -> bool:
    return bool((np.minimum(a.hi[0], b.hi[0]) > np.maximum(a.lo[0], b.lo[0])).all())


def check_reads(tasks: TaskGraph) -> None:
    """Whatever a task reads was written by tasks that are complete when it runs, or by itself before."""
    before, by_tensor = ancestors(needs(tasks)), defaultdict(list)
    reads, writes = touches(tasks)
    for w in writes:
        by_tensor[w.tensor].append(w)
    for r in reads:
        for w in by_tensor[r.tensor]:
            if overlap(r.box, w.box) and (r.task, r.position > w.position) != (w.task, True):
                assert before[r.task] >> w.task & 1, f"task {r.task} reads '{r.tensor}' before task {w.task} writes it"


def check_arena(tasks: TaskGraph) -> None:
    """Checks that of two tensors that share memory every task of one is complete before any task writes the other."""
    before = ancestors(needs(tasks))
    reads, writes = touches(tasks)
    writers, users = defaultdict(set), defaultdict(set)
    for w in writes:
        writers[w.tensor].add(w.task)
        users[w.tensor].add(w.task)
    for r in reads:
        users[r.tensor].add(r.task)
    arena = [(p.offset, p.offset + p.nbytes, name) for name, p in tasks.allocations.items() if p.kind == "arena"]
    assert all(end <= tasks.arena_bytes for _, end, _ in arena)

    def done_before(old: str, new: str) -> bool:
        everyone = sum(1 << t for t in users[old])
        return all(before[w] & everyone == everyone for w in writers[new])

    for k, (start, end, name) in enumerate(arena):
        for other_start, other_end, other in arena[:k]:
            if start < other_end and other_start < end:
                assert done_before(name, other) or done_before(other, name), f"'{name}' and '{other}' collide"


def any_order(tasks: TaskGraph, rng: np.random.Generator) -> list[int]:
    """An order that dependencies allow, at random."""
    waits = needs(tasks)
    left, readers = [len(w) for w in waits], defaultdict(list)
    for t, w in enumerate(waits):
        for d in w:
            readers[d].append(t)
    ready, order = [t for t, n in enumerate(left) if not n], []
    while ready:
        t = ready.pop(int(rng.integers(len(ready))))
        order.append(t)
        for r in readers[t]:
            left[r] -= 1
            if not left[r]:
                ready.append(r)
    return order


class ArenaMachine:
    """Runs tasks one by one, in a given order, on one piece of memory laid out as the task graph says.

    Freed memory is not cleared: what comes too early overwrites what is still needed, and results are wrong.
    """

    def __init__(self, tasks: TaskGraph, inputs: Mapping[str, np.ndarray]) -> None:
        self.tasks, self.graph = tasks, tasks.plan.graph
        self.arena = np.full(tasks.arena_bytes + 8, 255, np.uint8)
        self.tensors = dict(self.graph.constants) | dict(inputs)
        for name, place in tasks.allocations.items():
            if place.kind in ("arena", "output"):
                self.tensors[name] = self.room(name, place.kind, place.offset)
        self.steps = defaultdict(list)
        calls = [(s, k) for s in (*tasks.steps, *tasks.scratch_moves) for k in range(len(s.tasks))]
        for steps, k in sorted(calls, key=lambda call: call[0].positions[call[1]]):
            self.steps[int(steps.tasks[k])].append((steps, k))

    def room(self, name: str, kind: str, offset: int) -> np.ndarray:
        t = self.graph.types[name]
        if kind == "output":
            return np.zeros(t.shape, t.dtype)
        return self.arena[offset : offset + t.nbytes].view(t.dtype).reshape(t.shape)

    def run(self, order: list[int]) -> dict[str, np.ndarray]:
        for task in order:
            scratch = {n: self.junk(n, p) for n, p in self.tasks.allocations.items() if p.kind == "scratch"}
            for steps, k in self.steps[task]:
                if isinstance(steps, ScratchMoves):
                    self.move(steps, k, scratch[steps.tensor])
                else:
                    self.step(steps, k, {n: Slab(scratch[n], tuple(o[k].tolist())) for n, o in steps.origins.items()})
        return {name: self.tensors[name] for name in self.graph.outputs}

    def junk(self, name: str, place: Allocation) -> np.ndarray:
        return np.full(place.extents, 77, self.graph.types[name].dtype)

    def move(self, moves: ScratchMoves, k: int, array: np.ndarray) -> None:
        """Moves rows of a band buffer, and spoils those they came from."""
        source, target = (moves.boxes.slices(k, origins[k]) for origins in (moves.before, moves.after))
        moved = array[source].copy()
        assert moved.size
        array[source] = 78
        array[target] = moved

    def step(self, steps: Steps, k: int, local: dict[str, Slab]) -> None:
        node, box = self.graph.nodes[steps.node], steps.boxes[k]
        slabs = [self.slab(n, local) for n in node.inputs]
        value = node.op.evaluate(box, slabs, self.graph.ins(node), self.graph.out(node))
        if node.output in steps.origins:
            local[node.output].array[box.slices(0, local[node.output].origin)] = value
        else:
            self.tensors[node.output][box.slices()] = value

    def slab(self, name: str, local: Mapping[str, Slab]) -> Slab:
        """All that there is of a tensor."""
        if name in self.tasks.inplace_slices:
            part = self.tasks.inplace_slices[name]
            source, shape = self.slab(part.source, local), self.graph.types[name].shape
            origin = np.asarray(source.origin) - part.start
            inside = Boxes(origin[None], (origin + source.array.shape)[None]).clip(shape)
            return Slab(source.array[inside.slices(0, origin)], tuple(inside.lo[0].tolist()))
        if name in local:
            origin = np.asarray(local[name].origin)
            inside = Boxes(origin[None], (origin + local[name].array.shape)[None]).clip(self.graph.types[name].shape)
            return Slab(local[name].array[inside.slices(0, origin)], tuple(inside.lo[0].tolist()))
        array = self.tensors[name] if name in self.tensors else self.tensors[self.tasks.root(name)]
        return Slab(array.reshape(self.graph.types[name].shape), (0,) * self.graph.types[name].rank)


def check_twice(program, graph, inputs, want, tolerance=1e-4):
    """Two runs of a program, each against the expected outputs by name."""
    for _ in range(2):
        outputs = [np.full(graph.types[name].shape, np.nan, np.float32) for name in graph.outputs]
        program.run([inputs[name] for name in graph.inputs], outputs)
        for name, array in zip(graph.outputs, outputs, strict=True):
            np.testing.assert_allclose(array, want[name], rtol=0, atol=tolerance * max(1, np.abs(want[name]).max()))
