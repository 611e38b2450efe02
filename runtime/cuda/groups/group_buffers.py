"""Memory of bricks that are computed together: compact buffers, a slot per brick, that fit the device's L2 cache.

Groups of the same bricks take turns in the same buffers. The last group may leave slots as they are: what a library
computes of them, nobody reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from brickrt.ops.cuda.operand import Operand, dense
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.product import Product, parts_of
from brickrt.ops.types import TensorType
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.geometry.arena_packing import Lifetime, pack_arena
from brickrt.runtime.cuda.groups.group_geometry import Bricks, Key, Read
from brickrt.runtime.lowering.task_graph import Allocation


@dataclass(frozen=True)
class GroupAction:
    """What is done at a time, for a whole group, with `tensor`, `node`'s output or what it is the first to read.

    gather: its bricks are copied to the buffers. fill: zeros are written outside of its extents. crop: its window
    `read` is copied to a buffer of its own, since libraries take tensors without gaps. call: the library computes it,
    or a share. rest: a kernel computes what the library left. node: a kernel computes all of it. scatter: the bricks
    that the library computed are copied to where the tensor is stored whole."""

    kind: Literal["gather", "fill", "crop", "call", "rest", "node", "scatter"]
    node: int
    tensor: str
    read: Read = (-1, -1)


def actions_of(bricks: Bricks) -> list[GroupAction]:
    """The actions of a group, in order."""
    graph, found = bricks.tasks.plan.graph, list[GroupAction]()
    padded = {bricks.source(read) for read in bricks.reads if not isinstance(graph.nodes[read[0]].op, MatMul)}
    for k in bricks.nodes:
        name = graph.nodes[k].output
        for read in (read for read in sorted(bricks.reads) if read[0] == k):
            source = bricks.source(read)
            if source not in bricks.inner and not any(s.tensor == source for s in found):
                found.append(GroupAction("gather", k, source))
            if bricks.key(read) != source:
                found.append(GroupAction("crop", k, source, read))
        if name in bricks.inner or name == bricks.root:
            found.append(GroupAction("call" if k in bricks.library else "node", k, name))
        if bricks.library.get(k, "all") != "all":
            found.append(GroupAction("rest", k, name))
        if name in bricks.inner & padded:
            found.append(GroupAction("fill", k, name))
    if bricks.library.get(bricks.nodes[-1]) == "all":
        found.append(GroupAction("scatter", bricks.nodes[-1], bricks.root))
    return found


@dataclass(frozen=True, eq=False)
class GroupBuffers:
    """Where bricks have their buffers, from byte `start` of the arena on, for groups of at most `slots` bricks.

    `alike` bricks in a row have their second factor in common (`Bricks.common`), and one buffer for it."""

    bricks: Bricks
    actions: tuple[GroupAction, ...]
    slots: int
    alike: int
    offsets: Mapping[Key, int]
    start: int
    nbytes: int

    @property
    def groups(self) -> int:
        """How many groups take turns in the buffers."""
        return -(-len(self.bricks) // self.slots)

    def sharing(self, key: Key) -> int:
        """How many bricks have a buffer in common."""
        return self.alike if key == self.bricks.common[0] else 1

    def slot_of(self, key: Key) -> np.ndarray:
        """Which of a buffer's is each brick's, [bricks]."""
        return np.arange(len(self.bricks)) % self.slots // self.sharing(key)

    def place(self, key: Key) -> Allocation:
        """All slots of a buffer, one after the other along the first dimension."""
        extents, slots = self.bricks.extents(key), self.slots // self.sharing(key)
        stored = (slots * extents[0], *extents[1:])
        return Allocation("group", stored, slots * _nbytes(self.bricks, key), self.start + self.offsets[key])

    def packed(self, key: Key) -> Operand:
        """All slots of a buffer as one tensor."""
        return dense(TensorType(self.place(key).extents, self.bricks.dtype(key)), self.bricks.layout(key))

    def operand(self, name: str) -> Operand:
        """How all slots of a tensor lie, by the tensor's own indices."""
        return replace(self.packed(name), type=self.bricks.tasks.plan.graph.types[name])

    def product(self, k: int) -> Operand:
        """How all slots of a node's product lie, by the indices of its output, and of channels beyond."""
        graph, packed = self.bricks.tasks.plan.graph, self.packed(self.bricks.result(k))
        node = graph.nodes[k]
        assert isinstance(node.op, Product)
        shape = list(graph.out(node).shape)
        shape[1] *= parts_of(node.op)
        return replace(packed, type=TensorType(tuple(shape), packed.dtype))

    def origins(self, name: str) -> np.ndarray:
        """Index of what would be the first element of a tensor's buffers, so that a brick's are in its slot, [n, d]."""
        store = self.bricks.stores[name]
        found = store.lo.copy()
        found[:, 0] -= self.slot_of(name) * store.extents[0]
        return found


def make_buffers(bricks: Bricks, start: int, device: DeviceSpec, limit: int | None) -> GroupBuffers | None:
    """Groups of as many bricks as the cache holds, at most `limit`, all about equally large; None where one brick is
    too large for it."""
    actions, limit = actions_of(bricks), limit or len(bricks)
    cache = device.cache_share * device.shared[1]
    free = max(cache - _constant_bytes(bricks), cache / 2)  # weights that do not fit in half of it pass through
    for alike in (n for n in range(bricks.common[1], 0, -1) if bricks.common[1] % n == 0):
        count, (_, each) = len(bricks) // alike, _packed(bricks, actions, alike, alike)
        most = min(int(free // max(1, each)), count, limit // alike)
        if most:
            slots = alike * -(-count // -(-count // most))
            offsets, nbytes = _packed(bricks, actions, slots, alike)
            return GroupBuffers(bricks, tuple(actions), slots, alike, offsets, start, nbytes)
    return None


def _packed(bricks: Bricks, actions: Sequence[GroupAction], slots: int, alike: int) -> tuple[dict[Key, int], int]:
    """Offsets of all buffers, and their bytes; buffers that are never needed at the same time share memory."""
    users: dict[Key, list[int]] = {}
    for s, action in enumerate(actions):
        for key in _touched(bricks, action):
            users.setdefault(key, []).append(s)
    keys = list(users)
    lives = [
        Lifetime(str(n), count * _nbytes(bricks, key), users[key][0], users[key][-1], tuple(users[key]))
        for n, key in enumerate(keys)
        for count in [slots // alike if key == bricks.common[0] else slots]
    ]
    offsets, nbytes, _ = pack_arena(lives, 0)
    return {keys[int(n)]: offset for n, offset in offsets.items()}, nbytes


def _touched(bricks: Bricks, action: GroupAction) -> list[Key]:
    """Buffers that an action reads or writes."""
    if action.kind == "call":
        return [bricks.result(action.node), *(bricks.key(read) for read in bricks.reads if read[0] == action.node)]
    if action.kind in ("node", "rest"):
        names = *bricks.tasks.plan.graph.nodes[action.node].inputs[bricks.read(action.node) :], action.tensor
        inner = [root for root in map(bricks.tasks.root, names) if root in bricks.inner]
        return list(dict.fromkeys([*inner, *([bricks.result(action.node)] if action.kind == "rest" else ())]))
    return [action.tensor, action.read] if action.kind == "crop" else [action.tensor]


def _nbytes(bricks: Bricks, key: Key) -> int:
    return math.prod(bricks.extents(key)) * bricks.dtype(key).itemsize


def _constant_bytes(bricks: Bricks) -> int:
    graph = bricks.tasks.plan.graph
    names = {name for k in bricks.nodes for name in graph.nodes[k].inputs}
    return sum(graph.types[name].nbytes for name in names if name in graph.constants)
