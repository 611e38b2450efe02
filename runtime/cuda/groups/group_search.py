"""Padded subgraphs whose products a library computes, a call per layer and group of bricks.

    one launch of bricks                        launches of two groups
    [x → conv → relu → conv → y] per brick      gather conv fill relu fill conv scatter | gather conv fill …

A group's tensors stay in the L2 cache from one launch to the next. What a convolution computes beyond the ends of a
tensor is set to zero ("fill", of a few bricks only) before the next one reads it: then all bricks are alike, and one
call serves them. Bricks at the ends by themselves would be up to 3ᵈ − 1 further calls, each too small for the device.
Rows of matrices are such bricks too; there nothing needs to be set to zero, since no row is computed from another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from brickrt.ops.cuda.cudnn.coverage import Coverage, coverages
from brickrt.ops.cuda.cudnn.form import Unfit
from brickrt.ops.cuda.cudnn.graph import CudnnPlan
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.product import Product
from brickrt.plan.geometry.bricks import BrickGrid
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.cuda.driver.alignment import aligned_size
from brickrt.runtime.cuda.driver.protocol import ProductLibrary
from brickrt.runtime.cuda.groups.cudnn_layers import SLOWER, Layer, Layers, find_layers, is_layer
from brickrt.runtime.cuda.groups.group_buffers import GroupBuffers, make_buffers
from brickrt.runtime.cuda.groups.group_cudnn import check_group, group_layer, ways_of
from brickrt.runtime.cuda.groups.group_geometry import Bricks, bricks_of
from brickrt.runtime.cuda.groups.group_steps import GroupStepList, GroupSteps
from brickrt.runtime.cuda.schedule.argument_table import device_places
from brickrt.runtime.cuda.schedule.launches import Launch
from brickrt.runtime.lowering.task_graph import TaskGraph

Call = tuple[Layer, CudnnPlan]
NodeCalls = dict[int, Call]


@dataclass
class Groups:
    """The `launches` of a program, in which bricks are in groups where that is possible, and the library's `calls`
    among them, by index of the launch.

    Kernels do the rest in `extra` steps, which take the place of the task graph's steps `skipped`, or come after calls.
    Their tasks have numbers after the graph's; `owners` are the graph's tasks that they are part of. `arena` is in
    bytes, with the buffers of bricks. `layers` are those that the library may compute whole, `reasons` why kernels
    compute nodes, or what is left of them, by name.
    """

    launches: list[Launch]
    arena: int
    layers: Layers = field(default_factory=Layers)
    calls: NodeCalls = field(default_factory=dict)
    extra: list[GroupSteps] = field(default_factory=list)
    skipped: frozenset[int] = frozenset()
    owners: list[np.ndarray] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)

    def owner(self, count: int) -> np.ndarray:
        """The task of the graph, which has `count`, that each task is, or is a part of."""
        return np.concatenate([np.arange(count), *self.owners])


def find_groups(
    tasks: TaskGraph, launches: Sequence[Launch], library: ProductLibrary | None, limit: int | None
) -> Groups:
    """All that the library has plans for, in groups of at most `limit` bricks."""
    if library is None:
        return Groups(list(launches), tasks.arena_bytes)
    return _GroupSearch(tasks, library, limit, find_layers(tasks)).groups(launches)


class _GroupSearch:
    def __init__(self, tasks: TaskGraph, library: ProductLibrary, limit: int | None, layers: Layers) -> None:
        self.tasks, self.library, self.limit = tasks, library, limit
        self.places = device_places(tasks)
        self.extra = GroupStepList(self.places, len(tasks.steps), len(tasks))
        self.steps_of = {steps.node: i for i, steps in enumerate(tasks.steps)}
        self.found = Groups([], tasks.arena_bytes, layers, extra=self.extra.found)
        self.chain: int | None = None  # the last launch that uses the buffers

    def groups(self, launches: Sequence[Launch]) -> Groups:
        ends: list[int] = []  # of each launch, or what it became, the last
        for launch in launches:
            launch = replace(launch, after=tuple(ends[k] for k in launch.after))
            bricks = launch.kind == "bricks"
            if bricks and is_layer(self.subgraph(launch)) and launch.steps[0] in self.found.layers.found:
                bricks, launch = False, replace(launch, kind="layer")
            groups = self.in_groups(launch) if bricks else {}
            if groups:
                self.found.skipped |= set(launch.steps)
            elif not bricks and (call := self.whole(launch)):
                self.layer(launch, *call)
            else:
                self.found.launches.append(launch)
            for buffers, calls in groups.items():
                self.launch(launch, buffers, calls)
            ends.append(len(self.found.launches) - 1)
        return self.found

    def subgraph(self, launch: Launch) -> Subgraph:
        return self.tasks.plan.subgraphs[int(self.tasks.task_subgraph[launch.tasks[0]])]

    # ---- whole layers

    def whole(self, launch: Launch) -> Call | None:
        """The call for a launch, if it is one of a whole layer of which the library has a plan for any share."""
        i = launch.steps[0] if len(launch.steps) == 1 and launch.kind == "layer" else -1
        layers = self.found.layers.found.get(i, [])
        if not layers or len(launch.tasks) != len(np.unique(self.tasks.steps[i].tasks)):
            return None
        for layer in layers:
            try:
                return layer, self.library.plan(layer.form)
            except Unfit as e:
                self.found.layers.reasons.setdefault(self.name(self.tasks.steps[i].node), str(e))
        return None

    def layer(self, launch: Launch, layer: Layer, plan: CudnnPlan) -> None:
        """A call, and a launch of what it leaves to a kernel."""
        steps, call = self.tasks.steps[layer.steps], len(self.found.launches)
        self.found.calls[call] = layer, plan
        self.found.launches.append(launch)
        if layer.share != "all":
            part = self.extra.rest_of(steps, layer.share)
            self.found.owners.append(steps.tasks)
            rest = replace(launch, tasks=part.tasks, steps=(part.index,), after=(call,))
            self.found.launches.append(rest)

    def name(self, k: int) -> str:
        return self.tasks.plan.graph.nodes[k].name

    # ---- which

    def in_groups(self, launch: Launch) -> dict[GroupBuffers, NodeCalls]:
        """The bricks of a launch by shape, with the calls for their nodes; none where kernels compute them."""
        subgraph = self.subgraph(launch)
        ops = {k: self.tasks.plan.graph.nodes[k].op for k in subgraph.nodes}
        asked = {k: list(coverages(op)) for k, op in ops.items() if isinstance(op, Product)}
        for k in subgraph.kernels:
            self.found.reasons[self.name(k)] = SLOWER
            asked.pop(k, None)
        refused: dict[int, str] = {}
        for k, some in asked.items():
            for share in tuple(some):
                try:
                    check_group(self.tasks, subgraph.nodes, k, share)
                except Unfit as e:
                    some.remove(share)
                    refused.setdefault(k, str(e))
        found: dict[GroupBuffers, NodeCalls] = {}
        while (library := {k: some[0] for k, some in asked.items() if some}) and not found:
            found, why = self.attempt(subgraph, library)
            for k in why:
                asked[k].pop(0)
            refused = why | refused
        self.found.reasons |= {self.name(k): why for k, why in refused.items()}
        return found

    def attempt(
        self, subgraph: Subgraph, library: Mapping[int, Coverage]
    ) -> tuple[dict[GroupBuffers, NodeCalls], dict[int, str]]:
        """Buffers if the library has plans for these shares of nodes; else why not, of those for which it has none."""
        bricks, start = self.bricks(subgraph, library), aligned_size(self.tasks.arena_bytes)
        buffers = [make_buffers(some, start, self.tasks.plan.device, self.limit) for some in bricks]
        if not buffers or None in buffers:
            why = "a brick is larger than the cache" if buffers else "bricks have too many shapes"
            return {}, dict.fromkeys(library, why)
        found: dict[GroupBuffers, NodeCalls] = {}
        refused: dict[int, str] = {}
        for one in (one for one in buffers if one is not None):
            calls = {k: self.call(one, k) for k in library}
            refused |= {k: call for k, call in calls.items() if isinstance(call, str)}
            found[one] = {k: call for k, call in calls.items() if not isinstance(call, str)}
        return {} if refused else found, refused

    def call(self, buffers: GroupBuffers, k: int) -> Call | str:
        """The library's call for a node of the bricks in these buffers, or why it has none."""
        why = ""
        for way in ways_of(self.tasks, buffers, k):
            try:
                layer = group_layer(self.places, buffers, self.steps_of[k], way)
                return layer, self.library.plan(layer.form)
            except Unfit as e:
                why = why or str(e)
        return why

    def bricks(self, subgraph: Subgraph, library: Mapping[int, Coverage]) -> list[Bricks]:
        """In the order of their tasks, which keeps neighbours together; of matrices one matrix after the other."""
        order, root = np.argsort(self.task_of(subgraph)), self.tasks.plan.graph.nodes[subgraph.nodes[-1]]
        if isinstance(root.op, MatMul):
            order = np.sort(order)
        return bricks_of(self.tasks, subgraph.nodes, subgraph.brick, library, order)

    def task_of(self, subgraph: Subgraph) -> np.ndarray:
        """The task of each brick of the output, by number in its grid."""
        root, graph = subgraph.nodes[-1], self.tasks.plan.graph
        grid = BrickGrid(graph.out(graph.nodes[root]).shape, subgraph.brick)
        steps = self.tasks.steps[self.steps_of[root]]
        found = np.zeros(len(grid), np.int64)
        found[grid.index(steps.boxes.lo // np.asarray(grid.brick, np.int64))] = steps.tasks
        return found

    # ---- launches

    def launch(self, launch: Launch, buffers: GroupBuffers, calls: NodeCalls) -> None:
        """Adds all groups that take turns in the same buffers: launches that run one by one, after others that use the
        buffers' memory."""
        task_of, parts = (
            self.task_of(self.subgraph(launch)),
            [self.extra.of(buffers, action) for action in buffers.actions],
        )
        for part in (part for some in parts for part in some):
            self.found.owners.append(task_of[buffers.bricks.numbers[part.bricks]])
        for group in range(buffers.groups):
            for action, some in zip(buffers.actions, parts, strict=True):
                tasks = [part.tasks[part.bricks // buffers.slots == group] for part in some]
                if action.kind == "call":
                    self.found.calls[len(self.found.launches)] = calls[action.node]
                    self.add(launch, np.zeros(0, np.int64), ())
                elif sum(map(len, tasks)):
                    self.add(launch, np.concatenate(tasks), tuple(part.index for part in some))
        self.found.arena = max(self.found.arena, buffers.start + buffers.nbytes)

    def add(self, launch: Launch, tasks: np.ndarray, steps: tuple[int, ...]) -> None:
        before = set(launch.after) | (set() if self.chain is None else {self.chain})
        self.chain = len(self.found.launches)
        self.found.launches.append(Launch("layer", tasks, steps, tuple(sorted(before)), launch.subgraphs))
