"""Bricks of a padded subgraph that are computed together: what each of them holds of every tensor.

A convolution that a library computes for a whole group reads a window that may reach over the ends of the tensor, where
zeros lie, so that all bricks have the same shape, those at the ends included:

    tensor of 6, bricks of 2, 3 taps      |0 1 2 3 4 5|
    what the bricks read                -1 0 1 2
                                             1 2 3 4
                                                 3 4 5 6

Kernels of our own compute, and read, only what lies inside of the tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from brickrt.graph.ir import Node
from brickrt.ops.conv import Conv, ConvTranspose
from brickrt.ops.cuda.cudnn_share import Share, in_place, inputs_of, parts_of
from brickrt.ops.regions import columns
from brickrt.ops.types import Boxes, Shape, TensorType
from brickrt.plan.bricks import BrickGrid
from brickrt.runtime.parts import resolve
from brickrt.runtime.task_graph import TaskGraph

MOST_SHAPES = 8  # of the bricks of one subgraph: two along each of three dimensions
WHOLE_ENDS = 1.5  # bricks at the ends count as whole ones where that costs at most so many times the elements

PRODUCT = -1  # in the place of an input's number: the product of a node whose output does not lie there

Read = tuple[int, int]  # node, number of its input
Key = str | Read  # a buffer: of a tensor, of a window of one, or of a product


@dataclass(frozen=True, eq=False)
class Store:
    """Of each brick `extents` elements of a tensor from index `lo` on, int64 [n, d]; `needed` of them are read."""

    lo: np.ndarray
    extents: Shape
    needed: Boxes

    @property
    def box(self) -> Boxes:
        return Boxes(self.lo, self.lo + np.asarray(self.extents, np.int64))


@dataclass(eq=False)
class Bricks:
    """Bricks of equal shape: `numbers` in the grid of the output, and `boxes` of it, [n].

    `stores` by name of the tensor: what comes before the output, what a library reads or writes. `reads` are the boxes
    of a library's operands. The library computes nodes `library`, a share of each; `products` are boxes, by node, of
    what it leaves elsewhere than in the output: all channels of the product.
    """

    tasks: TaskGraph
    nodes: tuple[int, ...]
    library: Mapping[int, Share]
    numbers: np.ndarray
    boxes: Boxes
    stores: dict[str, Store] = field(default_factory=dict)
    reads: dict[Read, Boxes] = field(default_factory=dict)
    products: dict[int, Boxes] = field(default_factory=dict)
    _needed: dict[str, Boxes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.tasks.plan.graph
        made = [graph.nodes[k].output for k in self.nodes]
        self.root, self.inner = made[-1], frozenset(made[:-1]) - self.tasks.parts.keys()
        self._needed[self.root] = self.boxes
        for k in reversed(self.nodes):
            if graph.nodes[k].output in self.inner | {self.root}:
                self._join(k, graph.nodes[k])
        for name in self._needed.keys() - self.stores.keys() - {self.root}:
            self.stores[name] = self._store(name)

    def __len__(self) -> int:
        return len(self.numbers)

    # ---- from the output backwards

    def _join(self, k: int, node: Node) -> None:
        name = node.output
        if k in self.library:
            self._need(name, self._of_all_channels(name))
        if k in self.library or name in self.inner:
            self.stores[name] = self._store(name)
        if k in self.library:
            if self._apart(k, node):
                self.products[k] = self._product(node, self.stores[name].box)
            for i, box in self._windows(k, node, self.stores[name].box):
                self.reads[k, i] = box
                self._need(node.inputs[i], box)
        graph = self.tasks.plan.graph
        for i, source in enumerate(node.inputs):
            if i >= self.read(k) and source not in graph.constants:
                region = node.op.region(i, self.computed(name), graph.ins(node), graph.out(node))
                source, region = resolve(self.tasks.parts, source, region)
                if source in self.inner:
                    self._need(source, region)

    def _need(self, name: str, boxes: Boxes) -> None:
        self._needed[name] = boxes.union(self._needed[name]) if name in self._needed else boxes

    def _of_all_channels(self, name: str) -> Boxes:
        lo, hi = self._needed[name].lo.copy(), self._needed[name].hi.copy()
        lo[:, 1], hi[:, 1] = 0, self.tasks.plan.graph.types[name].shape[1]
        return Boxes(lo, hi)

    def _apart(self, k: int, node: Node) -> bool:
        """Whether what is left of a node is not computed in place: of the output, it is brought to where that lies."""
        assert isinstance(node.op, Conv | ConvTranspose)
        plan, left = self.tasks.plan, self.library[k] != "all"
        here = node.output != self.root and in_place(node.op, plan.graph.types[node.inputs[0]].dtype)
        return left and not (here and plan.layouts[node.output] == "last")

    def _product(self, node: Node, boxes: Boxes) -> Boxes:
        assert isinstance(node.op, Conv | ConvTranspose)
        hi = boxes.hi.copy()
        hi[:, 1] *= parts_of(node.op)
        return Boxes(boxes.lo, hi)

    def _store(self, name: str) -> Store:
        """The same window of every brick, as far as the library reads; the rest begins where its first element does.

        What a transposed convolution computes begins with the same of its strides' phases.
        """
        needed = self._needed[name]
        lo, graph = needed.lo, self.tasks.plan.graph
        windows = [box for read, box in self.reads.items() if self.source(read) == name]
        if windows:
            lo = windows[0].lo - (windows[0].lo - lo).max(axis=0)
        made = graph.producers.get(name)
        if made is not None and made in self.library and isinstance(op := graph.nodes[made].op, ConvTranspose):
            lo = columns(len(lo), lo[:, :2], lo[:, 2:] - (lo[:, 2:] + op.pads) % op.strides)
        return Store(lo, tuple((needed.hi - lo).max(axis=0).tolist()), needed)

    def _windows(self, k: int, node: Node, boxes: Boxes) -> Iterator[tuple[int, Boxes]]:
        """What a convolution reads of its input and of what its epilogue adds, where that differs between bricks."""
        assert isinstance(node.op, Conv | ConvTranspose)
        graph = self.tasks.plan.graph
        lo, hi = reach(node.op, boxes.lo[:, 2:], boxes.hi[:, 2:])
        channels, n = graph.types[node.inputs[0]].shape[1], len(boxes)
        yield 0, Boxes(columns(n, boxes.lo[:, 0], [0], lo), columns(n, boxes.hi[:, 0], [channels], hi))
        for i in range(node.op.main, self.read(k)):
            kind = graph.types[node.inputs[i]]
            if node.inputs[i] in self.inner or spread(kind, boxes.rank):
                one = np.asarray(kind.shape, np.int64) == 1
                ends = (part[:, boxes.rank - kind.rank :] for part in (boxes.lo, boxes.hi))
                yield i, Boxes(*(np.where(one, least, end) for least, end in zip((0, 1), ends, strict=True)))

    # ---- what they ask for

    def read(self, k: int) -> int:
        """How many inputs of a node the library reads; kernels read those after them."""
        node = self.tasks.plan.graph.nodes[k]
        return inputs_of(node.op, self.library[k], len(node.inputs)) if k in self.library else 0

    def source(self, read: Read) -> str:
        """The tensor that is read."""
        return self.tasks.plan.graph.nodes[read[0]].inputs[read[1]]

    def key(self, read: Read) -> Key:
        """The buffer that the library reads: that of the tensor where it reads all of it, else one of its own."""
        store, box = self.stores[self.source(read)], self.reads[read]
        same = tuple(box.extents[0].tolist()) == store.extents and bool((box.lo[0] == store.lo[0]).all())
        return self.source(read) if same else read

    def result(self, k: int) -> Key:
        """The buffer that the library writes."""
        return (k, PRODUCT) if k in self.products else self.tasks.plan.graph.nodes[k].output

    def extents(self, key: Key) -> Shape:
        """Of a brick's buffer."""
        if isinstance(key, str):
            return self.stores[key].extents
        box = self.products[key[0]] if key[1] == PRODUCT else self.reads[key]
        return tuple(box.extents[0].tolist())

    def dtype(self, key: Key) -> np.dtype:
        """Of a buffer's elements; a product has that of its factors."""
        graph = self.tasks.plan.graph
        name = key if isinstance(key, str) else graph.nodes[key[0]].inputs[max(0, key[1])]
        return graph.types[name].dtype

    def computed(self, name: str) -> Boxes:
        """The boxes of a tensor that kernels of our own compute, or fetch: inside of the tensor."""
        return self._needed[name].clip(self.tasks.plan.graph.types[name].shape)

    def held(self, name: str) -> Boxes:
        """The boxes of a tensor that the library reads, or leaves as its result."""
        made = self.tasks.plan.graph.producers.get(name)
        return self.stores[name].box if made in self.library else self.stores[name].needed

    def shapes(self) -> np.ndarray:
        """What must be equal of bricks that are computed together, int64 [n, values]."""
        found = [self.boxes.extents]
        for read, box in self.reads.items():
            found += [box.extents, box.lo - self.stores[self.source(read)].lo]
        return np.concatenate(found, axis=1)


def reach(op: Conv | ConvTranspose, lo: np.ndarray, hi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ranges that ranges of the output read, [n, spatial], also beyond the ends of the input; those of a transposed
    convolution begin with a multiple of its strides, padding included."""
    if isinstance(op, Conv):
        return op.window.reach(lo, hi)
    before = (np.asarray(op.window.spans) - 1) // op.strides
    return (lo + op.pads) // op.strides - before, (hi - 1 + op.pads) // op.strides + 1


def spread(kind: TensorType, rank: int) -> bool:
    """Whether an operand that broadcasts to images of this rank has more than values of channels."""
    return any(e > 1 for axis, e in enumerate(reversed(kind.shape)) if axis != rank - 2)


def bricks_of(
    tasks: TaskGraph, nodes: Sequence[int], brick: Shape, library: Mapping[int, Share], order: np.ndarray
) -> list[Bricks]:
    """All bricks of a padded subgraph, in an order of their numbers, those of equal shape together; ends of a tensor
    as whole bricks if that costs little. None where their shapes are too many."""
    grid = BrickGrid(tasks.plan.graph.out(tasks.plan.graph.nodes[nodes[-1]]).shape, brick)
    boxes = grid.boxes()
    whole = Boxes(boxes.lo, boxes.lo + np.asarray(grid.brick, np.int64))
    if whole.volumes.sum() <= WHOLE_ENDS * boxes.volumes.sum():
        boxes = whole
    found: list[Bricks] = []
    left = [Bricks(tasks, tuple(nodes), library, order, boxes.take(order))] if len(grid) else []
    while left and len(found) + len(left) <= MOST_SHAPES:
        bricks = left.pop()
        shapes = bricks.shapes()
        if (shapes == shapes[0]).all():
            found.append(bricks)
            continue
        kinds, which = np.unique(shapes, axis=0, return_inverse=True)
        for kind in range(len(kinds)):
            mine = np.flatnonzero(which.reshape(-1) == kind)
            part = Bricks(tasks, bricks.nodes, library, bricks.numbers[mine], bricks.boxes.take(mine))
            left.append(part)
    return [] if left else found


def outside(boxes: Boxes, shape: Sequence[int]) -> tuple[np.ndarray, Boxes]:
    """The parts of boxes that lie outside of a tensor: numbers of the boxes, and the parts, none of which overlap."""
    inside, left = boxes.clip(shape), Boxes(boxes.lo.copy(), boxes.hi.copy())
    numbers, lo, hi = [], [], []
    for axis in range(boxes.rank):
        first, last = left.lo[:, axis], left.hi[:, axis]
        before, after = np.minimum(inside.lo[:, axis], last), np.maximum(inside.hi[:, axis], first)
        for start, end in ((first, before), (after, last)):
            part = Boxes(left.lo.copy(), left.hi.copy())
            part.lo[:, axis], part.hi[:, axis] = start, end
            some = np.flatnonzero(part.volumes)
            numbers.append(some)
            lo.append(part.lo[some])
            hi.append(part.hi[some])
        left.lo[:, axis], left.hi[:, axis] = inside.lo[:, axis], inside.hi[:, axis]
    return np.concatenate(numbers), Boxes(np.concatenate(lo), np.concatenate(hi))
