"""Bricks of a padded subgraph that are computed together: what each of them holds of every tensor.

A product that a library computes for a whole group reads a window that may reach over the ends of the tensor, where
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
from functools import cached_property

import numpy as np

from brickrt.graph.ir import Node
from brickrt.ops.cuda.cudnn.coverage import Coverage, in_place, inputs_of
from brickrt.ops.operators.conv import ConvTranspose
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.product import Product, parts_of
from brickrt.ops.regions import columns
from brickrt.ops.types import Boxes, Shape
from brickrt.plan.geometry.bricks import BrickGrid
from brickrt.plan.layout import Layout
from brickrt.runtime.cuda.groups.product_windows import channels_of, is_window, layout_of, window
from brickrt.runtime.lowering.inplace_slices import resolve, root_of
from brickrt.runtime.lowering.task_graph import TaskGraph

MOST_SHAPES = 8  # of the bricks of one subgraph: two along each of three dimensions
WHOLE_ENDS = 1.5  # bricks at the ends count as whole ones where that costs at most so many times the elements

PRODUCT = -1  # in the place of an input's number: the product of a node whose output does not lie there

Read = tuple[int, int]  # node, number of its input
Key = str | Read  # a buffer: of a tensor, of a window of one, or of a product


@dataclass(frozen=True, eq=False)
class Store:
    """What bricks keep of a tensor: `extents` elements from index `lo` on, int64 [n, d]; `needed` of them are read."""

    lo: np.ndarray
    extents: Shape
    needed: Boxes

    @property
    def box(self) -> Boxes:
        """The boxes that are kept, [n]."""
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
    library: Mapping[int, Coverage]
    numbers: np.ndarray
    boxes: Boxes
    stores: dict[str, Store] = field(default_factory=dict)
    reads: dict[Read, Boxes] = field(default_factory=dict)
    products: dict[int, Boxes] = field(default_factory=dict)
    _needed: dict[str, Boxes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.tasks.plan.graph
        made = [graph.nodes[k].output for k in self.nodes]
        self.root, self.inner = made[-1], frozenset(made[:-1]) - self.tasks.inplace_slices.keys()
        self._needed[self.root] = self.boxes
        for k in reversed(self.nodes):
            if graph.nodes[k].output in self.inner | {self.root}:
                self._join(k, graph.nodes[k])
        for name in self._needed.keys() - self.stores.keys() - {self.root}:
            self.stores[name] = self._store(name)

    @property
    def matrices(self) -> bool:
        """Whether they are rows of matrices."""
        return isinstance(self.tasks.plan.graph.nodes[self.nodes[-1]].op, MatMul)

    def __len__(self) -> int:
        return len(self.numbers)

    # ---- from the output backwards

    def _join(self, k: int, node: Node) -> None:
        name, op = node.output, node.op
        if k in self.library:
            assert isinstance(op, Product)
            self._need(name, self._of_channels(name, op))
        if k in self.library or name in self.inner:
            self.stores[name] = self._store(name)
        if k in self.library and isinstance(op, Product):
            if self._apart(k, node, op):
                self.products[k] = self._of_channels(name, op, parts_of(op))
            for i, box in self._windows(k, op, self.stores[name].box):
                source = self.source((k, i))
                self.reads[k, i] = (
                    resolve(self.tasks.inplace_slices, node.inputs[i], box)[1] if source in self.inner else box
                )
                self._need(source, self.reads[k, i])
        graph = self.tasks.plan.graph
        for i, source in enumerate(node.inputs):
            if i >= self.read(k) and source not in graph.constants:
                region = node.op.region(i, self.computed(name), graph.ins(node), graph.out(node))
                source, region = resolve(self.tasks.inplace_slices, source, region)
                if source in self.inner:
                    self._need(source, region)

    def _need(self, name: str, boxes: Boxes) -> None:
        self._needed[name] = boxes.union(self._needed[name]) if name in self._needed else boxes

    def _of_channels(self, name: str, op: Product, parts: int = 1) -> Boxes:
        """All channels of a tensor, so many times, of what is stored or else needed of it."""
        boxes = self.stores[name].box if name in self.stores else self._needed[name]
        kind, lo, hi = self.tasks.plan.graph.types[name], boxes.lo.copy(), boxes.hi.copy()
        channels = channels_of(op, kind.rank)
        lo[:, channels], hi[:, channels] = 0, parts * kind.shape[channels]
        return Boxes(lo, hi)

    def _apart(self, k: int, node: Node, op: Product) -> bool:
        """Whether what is left of a node is not computed in place: of the output, it is brought to where that lies."""
        plan, left = self.tasks.plan, self.library[k] != "all"
        here = node.output != self.root and in_place(op, plan.graph.types[node.inputs[0]].dtype)
        return left and not (here and plan.layouts[node.output] == layout_of(op))

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

    def _windows(self, k: int, op: Product, boxes: Boxes) -> Iterator[tuple[int, Boxes]]:
        """What a product reads of its factors and of what its epilogue adds, where that differs between bricks."""
        graph = self.tasks.plan.graph
        for i, name in enumerate(graph.nodes[k].inputs[: self.read(k)]):
            kind = graph.types[name]
            if is_window(op, i, kind, boxes.rank) or self.source((k, i)) in self.inner:
                yield i, window(op, i, kind, boxes)

    # ---- what they ask for

    def read(self, k: int) -> int:
        """How many inputs of a node the library reads; kernels read those after them."""
        node = self.tasks.plan.graph.nodes[k]
        return inputs_of(node.op, self.library[k], len(node.inputs)) if k in self.library else 0

    def source(self, read: Read) -> str:
        """The tensor that is read: of a part of one that is made here, all of it."""
        name = self.tasks.plan.graph.nodes[read[0]].inputs[read[1]]
        root = root_of(self.tasks.inplace_slices, name)
        return root if root in self.inner else name

    def key(self, read: Read) -> Key:
        """The buffer that the library reads: that of the tensor where it reads all of it, else one of its own."""
        store, box = self.stores[self.source(read)], self.reads[read]
        same = tuple(box.extents[0].tolist()) == store.extents and bool((box.lo[0] == store.lo[0]).all())
        return self.source(read) if same else read

    def result(self, k: int) -> Key:
        """The buffer that the library writes."""
        return (k, PRODUCT) if k in self.products else self.tasks.plan.graph.nodes[k].output

    def extents(self, key: Key) -> Shape:
        """The extents of one brick's buffer."""
        if isinstance(key, str):
            return self.stores[key].extents
        box = self.products[key[0]] if key[1] == PRODUCT else self.reads[key]
        return tuple(box.extents[0].tolist())

    def layout(self, key: Key) -> Layout:
        """The layout of a buffer: that of a tensor which is made here, else what the library reads or writes."""
        graph = self.tasks.plan.graph
        if isinstance(key, str) and key in self.inner:
            return self.tasks.plan.layouts[key]
        readers = (read[0] for read in self.reads if self.source(read) == key)
        op = graph.nodes[key[0] if not isinstance(key, str) else next(readers, self.nodes[-1])].op
        assert isinstance(op, Product)
        return layout_of(op)

    def dtype(self, key: Key) -> np.dtype:
        """The type of a buffer's elements; a product has that of its factors."""
        graph = self.tasks.plan.graph
        name = key if isinstance(key, str) else graph.nodes[key[0]].inputs[max(0, key[1])]
        return graph.types[name].dtype

    @cached_property
    def common(self) -> tuple[str, int]:
        """The second factor that each so many bricks in a row have in common, and how many; else no name, and one."""
        for k, i in self.reads:
            name, op = self.source((k, i)), self.tasks.plan.graph.nodes[k].op
            alone = [self.source(read) for read in self.reads].count(name) == 1 and self.key((k, i)) == name
            if i == 1 and isinstance(op, MatMul) and alone and (self.boxes.extents[:, :-2] == 1).all():
                changes = np.flatnonzero((np.diff(self.reads[k, i].lo, axis=0) != 0).any(axis=1)) + 1
                return name, int(np.gcd.reduce(np.diff([0, *changes, len(self)])))
        return "", 1

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


def bricks_of(
    tasks: TaskGraph, nodes: Sequence[int], brick: Shape, library: Mapping[int, Coverage], order: np.ndarray
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
