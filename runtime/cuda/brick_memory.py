"""Memory of bricks that are computed together: compact buffers, a slot per brick, that fit the device's L2 cache.

Groups of the same bricks take turns in the same buffers. The last group may leave slots as they are: what a library
computes of them, nobody reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from brickrt.ops.cuda.operand import Operand, dense
from brickrt.plan.device import DeviceSpec
from brickrt.runtime.cuda.brick_boxes import Bricks
from brickrt.runtime.storage import Life, pack_arena
from brickrt.runtime.task_graph import Place


@dataclass(frozen=True)
class Stage:
    """What is done with a group at a time: `tensor` is fetched, set to zero outside of its extents, computed by the
    library ("call") or by a kernel ("node"), or brought to where it is stored whole. `node` is whose tensor it is, or
    of what is fetched the first that reads it."""

    kind: Literal["gather", "fill", "call", "node", "scatter"]
    node: int
    tensor: str


def stages_of(bricks: Bricks) -> list[Stage]:
    """The stages of a group, in order."""
    graph, found = bricks.tasks.plan.graph, list[Stage]()
    windowed = {graph.nodes[k].inputs[i] for k, i in bricks.reads}
    for k in bricks.nodes:
        name = graph.nodes[k].output
        for source in (graph.nodes[k].inputs[i] for reader, i in sorted(bricks.reads) if reader == k):
            if source not in bricks.inner and not any(s.tensor == source for s in found):
                found.append(Stage("gather", k, source))
        if name in bricks.inner or name == bricks.root:
            found.append(Stage("call" if k in bricks.library else "node", k, name))
        if name in bricks.inner & windowed:
            found.append(Stage("fill", k, name))
    if bricks.nodes[-1] in bricks.library:
        found.append(Stage("scatter", bricks.nodes[-1], bricks.root))
    return found


@dataclass(frozen=True, eq=False)
class Room:
    """Where bricks have their buffers: a group of at most `slots` at a time, from byte `start` of the arena on."""

    bricks: Bricks
    stages: tuple[Stage, ...]
    slots: int
    offsets: Mapping[str, int]
    start: int
    nbytes: int

    @property
    def groups(self) -> int:
        return -(-len(self.bricks) // self.slots)

    def place(self, name: str) -> Place:
        extents = self.bricks.stores[name].extents
        stored = (self.slots * extents[0], *extents[1:])
        nbytes = self.slots * _nbytes(self.bricks, name)
        return Place("group", stored, 1, nbytes, self.start + self.offsets[name])

    def operand(self, name: str) -> Operand:
        """How all slots of a tensor lie, by the tensor's own indices; images with channels innermost."""
        plan = self.bricks.tasks.plan
        layout = plan.layouts[name] if name in self.bricks.inner else "last"
        return dense(plan.graph.types[name], layout, self.place(name).extents)

    def origins(self, name: str) -> np.ndarray:
        """Index of what would be the first element of a tensor's buffers, so that a brick's are in its slot, [n, d]."""
        store = self.bricks.stores[name]
        found = store.lo.copy()
        found[:, 0] -= np.arange(len(self.bricks)) % self.slots * store.extents[0]
        return found


def make_room(bricks: Bricks, start: int, device: DeviceSpec, limit: int | None) -> Room | None:
    """Groups of as many bricks as the cache holds, at most `limit`, all about equally large; None where one brick is
    too large for it."""
    stages = stages_of(bricks)
    _, each = _packed(bricks, stages, 1)
    cache = device.cache_share * device.shared[1]
    room = max(cache - _constant_bytes(bricks), cache / 2)  # weights that do not fit in half of it pass through
    most = min(int(room // max(1, each)), len(bricks), limit or len(bricks))
    if most < 1:
        return None
    slots = -(-len(bricks) // -(-len(bricks) // most))
    offsets, nbytes = _packed(bricks, stages, slots)
    return Room(bricks, tuple(stages), slots, offsets, start, nbytes)


def _packed(bricks: Bricks, stages: Sequence[Stage], slots: int) -> tuple[dict[str, int], int]:
    """Offsets of all buffers, and their bytes; buffers that are never needed at the same time share memory."""
    users: dict[str, list[int]] = {}
    for s, stage in enumerate(stages):
        for name in _touched(bricks, stage):
            users.setdefault(name, []).append(s)
    lives = [Life(n, slots * _nbytes(bricks, n), s[0], s[-1], tuple(s)) for n, s in users.items()]
    offsets, nbytes, _ = pack_arena(lives, 0)
    return offsets, nbytes


def _touched(bricks: Bricks, stage: Stage) -> list[str]:
    """Buffers that a stage reads or writes."""
    names = [stage.tensor]
    if stage.kind in ("call", "node"):
        names += [bricks.tasks.root(name) for name in bricks.tasks.plan.graph.nodes[stage.node].inputs]
    if stage.kind == "call":
        names += bricks.tasks.plan.graph.nodes[stage.node].inputs
    return [name for name in dict.fromkeys(names) if name in bricks.stores]


def _nbytes(bricks: Bricks, name: str) -> int:
    return math.prod(bricks.stores[name].extents) * bricks.tasks.plan.graph.types[name].dtype.itemsize


def _constant_bytes(bricks: Bricks) -> int:
    graph = bricks.tasks.plan.graph
    names = {name for k in bricks.nodes for name in graph.nodes[k].inputs}
    return sum(graph.types[name].nbytes for name in names if name in graph.constants)
