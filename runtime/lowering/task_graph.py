"""The task graph: brick tasks as flat integer arrays, numbered in the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from brickrt.ops.types import Boxes
from brickrt.plan.plan import Plan
from brickrt.runtime.lowering.inplace_slices import InplaceSlice

StorageKind = Literal["arena", "scratch", "group", "input", "output"]


@dataclass(frozen=True)
class Allocation:
    """Where a tensor is stored: densely, in its layout, from `offset` bytes on in the storage of its kind.

    `extents` are those of the storage: of the whole tensor, or of the largest box of a padded brick's scratch. `slot`
    is the index of the graph's input or output. Bricks of a "group" have scratch side by side, in the arena. `origin`
    is the index of the first element in storage, where that is not the tensor's first.
    """

    kind: StorageKind
    extents: tuple[int, ...]
    nbytes: int
    offset: int = 0
    slot: int = -1
    origin: tuple[int, ...] = ()


@dataclass(frozen=True)
class PrefetchTarget:
    """What a later step reads or writes of a tensor: elements `shift` [d] away from the indices of this one."""

    shift: tuple[int, ...]
    write: bool


@dataclass(frozen=True, eq=False)
class Steps:
    """Calls of one node: `boxes` of its output, the `tasks` they belong to, and their `positions` inside a task, [n].

    `origins` are, per tensor of the node that lies in scratch, the index of its storage's first element, [n, d].
    `prefetches` names stored tensors that later steps read or write: an engine may fetch them meanwhile.
    """

    node: int
    boxes: Boxes
    tasks: np.ndarray
    positions: np.ndarray
    origins: dict[str, np.ndarray]
    prefetches: dict[str, PrefetchTarget] = field(default_factory=dict)

    def part(self, rows: np.ndarray) -> Steps:
        """The calls of these numbers."""
        origins = {name: each[rows] for name, each in self.origins.items()}
        return Steps(self.node, self.boxes.take(rows), self.tasks[rows], self.positions[rows], origins, self.prefetches)


@dataclass(frozen=True, eq=False)
class ScratchMoves:
    """Copies inside the scratch of one tensor: `boxes` of it move so that its storage begins at another element.

    `before` and `after` are the index of the storage's first element, [n, d]; source and target never overlap.
    """

    tensor: str
    boxes: Boxes
    tasks: np.ndarray
    positions: np.ndarray
    before: np.ndarray
    after: np.ndarray


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """All tasks of a plan. Task t waits for `deps[dep_offsets[t]:dep_offsets[t + 1]]`, all smaller than t.

    A task runs its steps and scratch moves by their positions; one without steps joins others: it is complete when they
    are. `task_subgraph` is −1 for joins. `recomputed` counts elements computed more than once, `allocations` has every
    stored tensor, constants aside; `aliases` names the tensor that a view or slice is stored in, and `inplace_slices`
    says where in it a slice begins. `volumes` has, by node, the elements written of outputs that are not written whole.
    `fused_bytes` are those of scratch, by subgraph, that its blocks have in shared memory; they are not among
    `scratch_bytes`. With `open_sizes`, the model is likely to run at other sizes too.
    """

    plan: Plan
    dep_offsets: np.ndarray
    deps: np.ndarray
    task_subgraph: np.ndarray
    steps: tuple[Steps, ...] = ()
    scratch_moves: tuple[ScratchMoves, ...] = ()
    allocations: dict[str, Allocation] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    inplace_slices: dict[str, InplaceSlice] = field(default_factory=dict)
    arena_bytes: int = 0
    scratch_bytes: int = 0
    recomputed: int = 0
    volumes: Mapping[int, int] = field(default_factory=dict)
    fused_bytes: Mapping[int, int] = field(default_factory=dict)
    open_sizes: bool = False

    def __len__(self) -> int:
        return len(self.dep_offsets) - 1

    @cached_property
    def joins(self) -> int:
        """How many tasks only join others."""
        return int((self.task_subgraph < 0).sum())

    def root(self, tensor: str) -> str:
        """The tensor in whose storage this one lies."""
        return stored_in(self.aliases, tensor)

    def verify(self) -> TaskGraph:
        """Checks what the engines rely on; returns the graph. Raises ValueError."""
        owner = np.repeat(np.arange(len(self)), np.diff(self.dep_offsets))
        if len(self.deps) and not (self.deps < owner).all():
            raise ValueError("a task waits for one that does not run before it")
        if any(len(s.tasks) != len(s.boxes) or (s.boxes.hi < s.boxes.lo).any() for s in self.steps):
            raise ValueError("a step has no box or no task")
        self._verify_written()
        return self

    def _verify_written(self) -> None:
        """Every tensor is covered by the boxes that write it, once where nothing is recomputed."""
        graph = self.plan.graph
        for steps in self.steps:
            node = graph.nodes[steps.node]
            volume = int(steps.boxes.volumes.sum())
            size = self.volumes.get(steps.node, graph.types[node.output].size)
            if self.allocations[node.output].kind != "scratch" and volume != size:
                raise ValueError(f"node '{node.name}': its bricks have {volume} elements, its output {size}")


def stored_in(aliases: Mapping[str, str], tensor: str) -> str:
    """The tensor in whose storage another one lies, itself where it is no alias."""
    while tensor in aliases:
        tensor = aliases[tensor]
    return tensor
