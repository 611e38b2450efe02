"""Lowers a plan to its task graph: which bricks of which nodes, what each waits for, and in which order they run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from brickrt.graph.ir import Node
from brickrt.graph.time_budget import check_time
from brickrt.ops.operators.partial_reduce import Segmented
from brickrt.ops.types import Boxes, Shape
from brickrt.plan.geometry.arena_packing import aligned, pack_arena
from brickrt.plan.geometry.brick_packing import pack_brick
from brickrt.plan.geometry.bricks import BrickGrid, row_offsets
from brickrt.plan.geometry.in_place import read_in_place, stored_extents
from brickrt.plan.geometry.row_bands import swept_axis
from brickrt.plan.plan import Plan
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.lowering.arena import allocate, view_aliases, with_offsets
from brickrt.runtime.lowering.band_buffers import BandBuffer
from brickrt.runtime.lowering.band_prefetch import find_prefetches
from brickrt.runtime.lowering.equal_layers import EqualLayers
from brickrt.runtime.lowering.inplace_slices import InplaceSlice, find_inplace_slices, root_of, start_of
from brickrt.runtime.lowering.lifetimes import subgraph_lifetimes
from brickrt.runtime.lowering.order import depth_first
from brickrt.runtime.lowering.space_filling import hilbert
from brickrt.runtime.lowering.swept_bricks import SweptBricks
from brickrt.runtime.lowering.task_graph import Allocation, PrefetchTarget, ScratchMoves, Steps, StorageKind, TaskGraph

MANY_BRICKS = 32  # from which readers of most of a tensor wait for one join instead of for each brick


@dataclass
class Produced:
    """How a stored tensor is made: brick k of `grid` by task `first` + k, in subgraph `subgraph`."""

    grid: BrickGrid
    first: int
    subgraph: int


@dataclass
class Lowering:
    """One plan while it is lowered. Task numbers are provisional until the order is known; those of joins negative."""

    plan: Plan
    steps: list[Steps] = field(default_factory=list)
    scratch_moves: list[ScratchMoves] = field(default_factory=list)
    allocations: dict[str, Allocation] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    inplace_slices: dict[str, InplaceSlice] = field(default_factory=dict)
    produced: dict[str, list[Produced]] = field(default_factory=dict)
    waits: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)  # (task, what it waits for)
    owned: list[np.ndarray] = field(default_factory=list)  # provisional tasks of each subgraph, in order
    joins: dict[int, int] = field(default_factory=dict)  # subgraph → task that is complete when all of it is
    tasks: int = 0
    scratch: int = 0
    fused: dict[int, int] = field(default_factory=dict)  # subgraph → bytes of its bricks in shared memory
    recomputed: int = 0

    def __post_init__(self) -> None:
        self.equal = EqualLayers(self.plan)

    # ---- subgraphs

    def lower(self) -> TaskGraph:
        """The task graph of the whole plan."""
        self.allocate_io()
        for s, subgraph in enumerate(self.plan.subgraphs):
            check_time("lowering node", self.plan.graph.nodes[subgraph.nodes[-1]].name)
            first = self.tasks
            if subgraph.strategy in ("padded", "fused"):
                self.padded(s, subgraph)
            else:
                self.brick_by_brick(s, subgraph)
            self.owned.append(self.order(subgraph, first))
        arena = self.plan_arena()
        return self.finish(arena)

    def allocate_io(self) -> None:
        """Notes that inputs and outputs lie in the caller's arrays, and which tensors lie inside others."""
        graph = self.plan.graph
        self.inplace_slices = find_inplace_slices(self.plan)
        self.aliases = view_aliases(self.plan) | {n: part.source for n, part in self.inplace_slices.items()}
        io: tuple[tuple[StorageKind, tuple[str, ...]], ...] = (("input", graph.inputs), ("output", graph.outputs))
        for kind, names in io:
            for slot, name in enumerate(names):
                if name not in graph.constants and name not in self.allocations:
                    t = graph.types[name]
                    self.allocations[name] = Allocation(kind, t.shape, t.nbytes, slot=slot)

    def new_tasks(self, n: int) -> np.ndarray:
        """The numbers of `n` further tasks."""
        self.tasks += n
        return np.arange(self.tasks - n, self.tasks)

    def grid(self, k: int, brick: Shape) -> BrickGrid:
        """The bricks of what is computed of a node's output: all of it."""
        return BrickGrid(self.plan.graph.out(self.plan.graph.nodes[k]).shape, brick)

    def store(self, s: int, node: Node, grid: BrickGrid, first: int) -> None:
        """Notes that a node's output is stored brick by brick."""
        name = node.output
        self.produced.setdefault(name, []).append(Produced(grid, first, s))
        if name not in self.allocations and name not in self.aliases:
            self.allocations[name] = self.arena_place(name)

    def arena_place(self, name: str) -> Allocation:
        """Room in the arena for a whole tensor."""
        t, lanes = self.plan.graph.types[name], self.plan.device.lanes
        return allocate(t, t.shape, self.plan.layouts[name], lanes, "arena")

    def brick_by_brick(self, s: int, subgraph: Subgraph) -> None:
        """Layerwise and memoized: a task per brick of every node's output."""
        graph = self.plan.graph
        for k, brick in zip(subgraph.nodes, subgraph.node_bricks, strict=True):
            node = graph.nodes[k]
            if node.output in self.inplace_slices:
                continue
            if node.output in self.aliases:
                self.alias(s, node)
                continue
            grid = self.grid(k, brick)
            boxes, regions = self.equal.regions(k, grid)
            tasks = self.new_tasks(len(grid))
            self.steps.append(Steps(k, boxes, tasks, np.zeros(len(tasks), np.int64), {}))
            for name, region in zip(node.inputs, regions, strict=True):
                if region is not None:
                    self.wait_for(s, name, region, tasks)
            self.store(s, node, grid, int(tasks[0]) if len(tasks) else self.tasks)
            if subgraph.partial_reductions:  # of a single node
                self.partial_reduction_steps(s, subgraph, boxes, tasks, np.zeros(len(tasks), np.int64))

    def alias(self, s: int, node: Node) -> None:
        """One task without work, which waits for all of what the view shows."""
        task = self.new_tasks(1)
        source = node.inputs[0]
        self.wait_for(s, source, Boxes.whole(self.plan.graph.types[source].shape), task)
        shape = self.plan.graph.out(node).shape
        self.store(s, node, BrickGrid(shape, tuple(max(1, e) for e in shape)), int(task[0]))

    def padded(self, s: int, subgraph: Subgraph) -> None:
        """A task per brick of the last output; it computes all that it needs of the tensors before, in scratch."""
        graph = self.plan.graph
        grid = self.grid(subgraph.nodes[-1], subgraph.brick)
        tasks = self.new_tasks(len(grid))
        swept = self.equal.swept(subgraph, grid, self.inplace_slices)
        self.keep_scratch(swept.buffers, self.in_place(subgraph))
        if subgraph.strategy == "fused":
            self.pack_shared(s, subgraph, list(swept.buffers))
        else:
            self.pack_scratch(list(swept.buffers))
        self.recomputed += swept.recomputed
        axis = swept_axis(subgraph.brick, subgraph.band)
        prefetches = find_prefetches(self.plan, subgraph, axis) if swept.bands > 1 else {}
        of_band = np.repeat(tasks, swept.bands)
        for position, k in enumerate(subgraph.nodes):
            if graph.nodes[k].output not in self.inplace_slices:
                positions = np.tile(np.arange(swept.bands) * len(subgraph.members) + position, len(grid))
                self.band_steps(k, swept, of_band, 2 * positions + 1, prefetches.get(k, {}))
        for name, boxes in swept.outer.items():
            self.wait_for(s, name, boxes, tasks)
        self.store(s, graph.nodes[subgraph.nodes[-1]], grid, int(tasks[0]) if len(tasks) else self.tasks)
        after = np.tile(np.arange(swept.bands) * len(subgraph.members) + len(subgraph.nodes), len(grid))
        self.partial_reduction_steps(s, subgraph, swept.output, of_band, after)

    def partial_reduction_steps(
        self, s: int, subgraph: Subgraph, boxes: Boxes, tasks: np.ndarray, after: np.ndarray
    ) -> None:
        """Calls of a subgraph's partial reductions on the boxes of its output, once the tasks have made them."""
        at = np.flatnonzero(boxes.volumes)
        for n, k in enumerate(subgraph.partial_reductions):
            node = self.plan.graph.nodes[k]
            assert isinstance(node.op, Segmented)
            self.steps.append(Steps(k, node.op.made_of(boxes).take(at), tasks[at], 2 * (after[at] + n) + 1, {}))
            brick = tuple(node.op.made_of(Boxes.whole(subgraph.brick)).hi[0].tolist())
            self.store(s, node, self.grid(k, brick), int(tasks[0]))

    def band_steps(
        self,
        k: int,
        swept: SweptBricks,
        tasks: np.ndarray,
        positions: np.ndarray,
        prefetches: dict[str, PrefetchTarget],
    ) -> None:
        """Calls of node `k` in all bands of all bricks, each after what it keeps of its output has moved."""
        node, buffers = self.plan.graph.nodes[k], swept.buffers
        at, boxes = swept.computed[node.output]
        roots = [root_of(self.inplace_slices, name) for name in (*node.inputs, node.output)]
        local = {name: buffers[name].origins[at] for name in roots if name in buffers}
        self.steps.append(Steps(k, boxes, tasks[at], positions[at], local, prefetches))
        if node.output in buffers:
            own = buffers[node.output]
            at = np.flatnonzero(own.moves)
            if len(at):
                moved, origins = own.moved.take(at), (own.before[at], own.origins[at])
                self.scratch_moves.append(ScratchMoves(node.output, moved, tasks[at], positions[at] - 1, *origins))

    def in_place(self, subgraph: Subgraph) -> Collection[str]:
        """The tensors of a subgraph that products read where they lie in shared memory."""
        plan = self.plan
        if subgraph.strategy != "fused":
            return ()
        return read_in_place(plan.graph, plan.layouts, subgraph.nodes, plan.options.precision).values()

    def keep_scratch(self, buffers: Mapping[str, BandBuffer], in_place: Collection[str]) -> None:
        """Gives the tensors of a padded or fused brick scratch for all that a band of it holds of them; some are read
        `in_place` by products."""
        plan = self.plan
        for name, buffer in buffers.items():
            kind, layout, extents = plan.graph.types[name], plan.layouts[name], buffer.extents
            if name in in_place:
                (extents,) = stored_extents(np.array([extents]), layout, kind.dtype.itemsize).tolist()
            self.allocations[name] = allocate(kind, extents, layout, plan.device.lanes, "scratch")

    def pack_scratch(self, names: list[str]) -> None:
        """Gives the scratch of a padded brick's tensors its offsets, one behind the other."""
        at = 0
        offsets = {}
        for name in names:
            offsets[name] = at
            at += aligned(self.allocations[name].nbytes)
        self.allocations.update(with_offsets({n: self.allocations[n] for n in names}, offsets))
        self.scratch = max(self.scratch, at)

    def pack_shared(self, s: int, subgraph: Subgraph, names: list[str]) -> None:
        """Gives the tensors of a fused brick their offsets in shared memory, where lifetimes let them share ranges."""
        sizes = {name: self.allocations[name].nbytes for name in names}
        offsets, self.fused[s] = pack_brick(self.plan.graph, subgraph.nodes, sizes)
        self.allocations.update(with_offsets({n: self.allocations[n] for n in names}, offsets))

    # ---- dependencies

    def wait_for(self, s: int, tensor: str, boxes: Boxes, tasks: np.ndarray) -> None:
        """`tasks` of subgraph `s` read `boxes` of a tensor."""
        start = tuple(start_of(self.inplace_slices, tensor, boxes.rank)[0].tolist())
        for made in self.produced.get(root_of(self.inplace_slices, tensor), ()):
            self.wait_for_bricks(s, made, *self.equal.covering(made.grid, boxes, start), tasks)

    def wait_for_bricks(
        self, s: int, made: Produced, offsets: np.ndarray, bricks: np.ndarray, tasks: np.ndarray
    ) -> None:
        """`tasks` wait for bricks, listed in CSR form, or for all of the subgraph where that is most of them."""
        most_of_it = len(made.grid) > MANY_BRICKS and len(bricks) > len(made.grid) * len(tasks) // 2
        if most_of_it and made.subgraph != s:
            self.waits.append((tasks, np.full(len(tasks), self.join(made.subgraph))))
            return
        self.waits.append((np.repeat(tasks, np.diff(offsets)), made.first + bricks))

    def join(self, s: int) -> int:
        """The task that is complete when subgraph `s` is."""
        if s not in self.joins:
            self.joins[s] = task = -1 - len(self.joins)
            self.waits.append((np.full(len(self.owned[s]), task), self.owned[s]))
        return self.joins[s]

    def plan_arena(self) -> int:
        """Gives arena tensors offsets, and returns the bytes; writers of memory used before wait for its users."""
        lives = subgraph_lifetimes(self.plan, self.allocations, self.aliases)
        offsets, total, reuses = pack_arena(lives)
        self.allocations = with_offsets(self.allocations, offsets)
        for reuse in reuses:
            check_time("ordering the uses of the memory of", reuse.tensor)
            produced = self.produced[reuse.tensor]
            writers = np.concatenate([np.arange(made.first, made.first + len(made.grid)) for made in produced])
            for user in reuse.users:
                self.waits.append((writers, np.full(len(writers), self.join(user))))
        return total

    # ---- order

    def order(self, subgraph: Subgraph, first: int) -> np.ndarray:
        """The subgraph's tasks in the order in which they run: demand of the output's bricks along a curve."""
        tasks = np.arange(first, self.tasks)
        if subgraph.strategy == "layerwise" or len(tasks) < 3:
            return tasks
        made = self.produced[self.plan.graph.nodes[subgraph.nodes[-1]].output][-1]
        roots = made.first - first + along_curve(made.grid)
        inside = [(t, d) for t, d in self.waits if len(d) and t[0] >= first and d[0] >= first]
        if not inside:
            return first + np.concatenate([roots, np.setdiff1d(tasks - first, roots)])
        readers, needs = (np.concatenate(part) - first for part in zip(*inside, strict=True))
        by_reader = np.argsort(readers, kind="stable")
        offsets = row_offsets(np.bincount(readers, minlength=len(tasks)))
        return first + depth_first(offsets, needs[by_reader], roots)

    def finish(self, arena: int) -> TaskGraph:
        """Renumbers all tasks by the order in which they run."""
        sequence: list[np.ndarray] = []
        owner: list[np.ndarray] = []
        for s, tasks in enumerate(self.owned):
            sequence.append(tasks)
            owner.append(np.full(len(tasks), s))
            if s in self.joins:
                sequence.append(np.array([self.tasks - 1 - self.joins[s]]))
                owner.append(np.array([-1]))
        order = np.concatenate([*sequence, np.zeros(0, np.int64)]).astype(np.int64)
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order))
        readers, needs = self.all_waits(number)
        by_reader = np.argsort(readers, kind="stable")
        return TaskGraph(
            plan=self.plan,
            steps=tuple(replace(s, tasks=number[s.tasks]) for s in self.steps),
            scratch_moves=tuple(replace(c, tasks=number[c.tasks]) for c in self.scratch_moves),
            dep_offsets=row_offsets(np.bincount(readers, minlength=len(order))),
            deps=needs[by_reader],
            task_subgraph=np.concatenate([*owner, np.zeros(0, np.int64)]).astype(np.int64),
            allocations=self.allocations,
            aliases=self.aliases,
            inplace_slices=self.inplace_slices,
            arena_bytes=arena,
            scratch_bytes=self.scratch,
            recomputed=self.recomputed,
            fused_bytes=self.fused,
        )

    def all_waits(self, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All dependencies: (task, what it waits for), by final `number`, where joins are behind all other tasks. Their
        provisional numbers are negative, -1 for the first."""
        final = np.concatenate([number[: self.tasks], number[self.tasks :][::-1]])
        empty = np.zeros(0, np.int64)
        readers, needs = (final[np.concatenate([empty, *(w[k] for w in self.waits)])] for k in (0, 1))
        return readers, needs


def along_curve(grid: BrickGrid) -> np.ndarray:
    """Brick numbers in the order of visit: batch and channels outermost, and a Hilbert curve through the rest."""
    outer = int(np.prod(grid.grid[:2])) if len(grid.grid) > 3 else 1
    inner = grid.grid[2:] if len(grid.grid) > 3 else grid.grid
    curve = hilbert(inner)
    return (np.arange(outer)[:, None] * len(curve) + curve).reshape(-1)


def lower(plan: Plan) -> TaskGraph:
    """The verified task graph of a plan."""
    return Lowering(plan).lower().verify()
