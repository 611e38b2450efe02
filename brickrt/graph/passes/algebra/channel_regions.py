"""Regions of a graph whose tensors have channels last, and that may as well have them first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Transpose, View
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.types import Shape


def to_last(node: Node | None) -> bool:
    """Whether a node puts axis 1 last: [N, C, …] becomes [N, …, C]."""
    return node is not None and isinstance(node.op, Transpose) and node.op.perm == last_axes(len(node.op.perm))


def to_first(node: Node) -> bool:
    """Whether a node puts the last axis at 1: [N, …, C] becomes [N, C, …]."""
    return isinstance(node.op, Transpose) and node.op.perm == first_axes(len(node.op.perm))


def last_axes(rank: int) -> tuple[int, ...]:
    """The permutation of [N, C, …] to [N, …, C]; of rank 3 at least."""
    return (0, *range(2, rank), 1) if rank > 2 else ()


def first_axes(rank: int) -> tuple[int, ...]:
    """The permutation of [N, …, C] to [N, C, …]; of rank 3 at least."""
    return (0, rank - 1, *range(1, rank - 1)) if rank > 2 else ()


@dataclass(frozen=True)
class ChannelRegion:
    """Nodes whose tensors are [N, …, C], and the `space` that is … in full; some may have it as one axis. `others` are
    nodes of regions that were found before. A transpose between two regions of rank 3 leads out of one and into the
    other: it is saved in one of them only."""

    graph: Graph
    nodes: frozenset[str]
    space: Shape
    others: frozenset[str] = frozenset()

    def entries(self) -> list[str]:
        """Tensors that nodes of the region read and others write, constants left out."""
        inside = (self.graph.nodes[self.graph.producers[name]] for name in self.nodes)
        names = dict.fromkeys(name for node in inside for name in node.inputs)
        return [name for name in names if name not in self.nodes and name not in self.graph.constants]

    def gain(self) -> int:
        """Elements that need not be transposed any more if the region has its channels first."""
        entering = sum(self._entry(name) for name in self.entries())
        return entering + sum(self._exits(name) for name in self.nodes)

    def _entry(self, name: str) -> int:
        graph, size = self.graph, self.graph.types[name].size
        turn = producer(graph, name)
        if turn is None or not to_last(turn) or turn.inputs[0] in self.others:
            return -size
        alone = all(reader.output in self.nodes for reader in readers(graph, name))
        return size if alone and name not in graph.outputs else 0

    def _exits(self, name: str) -> int:
        graph, size = self.graph, self.graph.types[name].size
        outside = [reader for reader in readers(graph, name) if reader.output not in self.nodes]
        turned = [reader for reader in outside if to_first(reader) and not self._enters_another(reader)]
        return size * (len(turned) - (len(turned) < len(outside) or name in graph.outputs))

    def _enters_another(self, turn: Node) -> bool:
        return to_last(turn) and any(reader.output in self.others for reader in readers(self.graph, turn.output))

    def first(self, shape: Shape) -> Shape:
        """The shape with channels first of a tensor of the region, or of one that broadcasts to such tensors."""
        return (shape[0], shape[-1], *self._spread(shape[1:-1]))

    def _spread(self, space: Shape) -> Shape:
        if len(space) == len(self.space):
            return space
        return self.space if space == (math.prod(self.space),) else (1,) * len(self.space)


def producer(graph: Graph, name: str) -> Node | None:
    """The node that writes a tensor; None for inputs and constants."""
    return graph.nodes[graph.producers[name]] if name in graph.producers else None


def readers(graph: Graph, name: str) -> list[Node]:
    """The nodes that read a tensor."""
    return [graph.nodes[k] for k in graph.consumers.get(name, ())]


def channel_regions(graph: Graph) -> Iterator[ChannelRegion]:
    """The regions that transposes of channels lead into, in which they would pay."""
    movable = {node.output for node in graph.nodes if _movable(graph, node)}
    seen: set[str] = set()
    chosen: frozenset[str] = frozenset()
    starts = [reader.output for node in graph.nodes if to_last(node) for reader in readers(graph, node.output)]
    for start in starts:
        if start in movable and start not in seen:
            space = _space(graph, _connected(graph, start, lambda name: name in movable))
            left = movable.difference(seen)

            def fits(name: str, left: set[str] = left, space: Shape = space) -> bool:
                return name in left and _fits(graph, name, space)

            fitting = fits(start)
            nodes = _connected(graph, start, fits) if fitting else {start}
            seen |= nodes
            region = ChannelRegion(graph, frozenset(nodes), space, chosen)
            if fitting and region.gain() > 0:
                chosen |= region.nodes
                yield region


def _connected(graph: Graph, start: str, belongs: Callable[[str], bool]) -> set[str]:
    """The outputs of nodes that a node leads to over nodes that belong, itself among them."""
    found, left = {start}, [start]
    while left:
        node = graph.nodes[graph.producers[left.pop()]]
        around = [*node.inputs, *(reader.output for reader in readers(graph, node.output))]
        new = [name for name in dict.fromkeys(around) if name not in found and belongs(name)]
        found.update(new)
        left += new
    return found


def _movable(graph: Graph, node: Node) -> bool:
    """Whether a node computes the same for channels first, its constants rearranged."""
    rank, kinds = graph.out(node).rank, graph.ins(node)
    if rank < 3 or not kinds:
        return False
    match node.op:
        case Map() | Reduce(keepdims=True):
            whole = all(kind.rank == rank for name, kind in zip(node.inputs, kinds) if name not in graph.constants)
            return whole and any(name not in graph.constants for name in node.inputs)
        case MatMul(epilogue=None):
            known = all(name in graph.constants for name in node.inputs[1:]) and node.inputs[0] not in graph.constants
            return known and kinds[1].rank == 2 and kinds[1].dtype == kinds[0].dtype in (np.float32, np.float64)
        case View():
            before, after = kinds[0].shape, graph.out(node).shape
            return len(before) > 2 and (before[0], before[-1]) == (after[0], after[-1]) and before != after
    return False


def _fits(graph: Graph, output: str, space: Shape) -> bool:
    """Whether each tensor of a node has the space, as it is, or as one axis, or ones in its place."""
    node = graph.nodes[graph.producers[output]]
    shapes = [graph.types[name].shape[1:-1] for name in (output, *node.inputs) if graph.types[name].rank > 2]
    return all(_is_space(shape, space) for shape in shapes)


def _is_space(shape: Shape, space: Shape) -> bool:
    if len(shape) == len(space):
        return all(a in (1, b) for a, b in zip(shape, space, strict=True))
    return len(shape) == 1 and shape[0] in (1, math.prod(space))


def _space(graph: Graph, nodes: Iterable[str]) -> Shape:
    """The extents between batch and channels that most elements at the transposes around a region have, in full where
    Views beyond these split an axis."""
    found: Counter[Shape] = Counter()
    for out in nodes:
        for name in graph.nodes[graph.producers[out]].inputs:
            turn = producer(graph, name)
            if turn is not None and to_last(turn):
                view = producer(graph, turn.inputs[0])
                images = [graph.ins(view)[0].shape] if view is not None and isinstance(view.op, View) else []
                found.update(dict.fromkeys(_seen(graph.types[name].shape, images), graph.types[name].size))
        for turn in readers(graph, out):
            if to_first(turn):
                images = [graph.out(view).shape for view in readers(graph, turn.output) if isinstance(view.op, View)]
                found.update(dict.fromkeys(_seen(graph.types[out].shape, images), graph.types[out].size))
    return max(found, key=lambda space: (len(space) > 1, found[space], space))


def _seen(shape: Shape, images: Iterable[Shape]) -> set[Shape]:
    """The spaces of a tensor [N, …, C], and of images [N, C, …] of it, if it has their space as one axis."""
    same = {image[2:] for image in images if image[:2] == (shape[0], shape[-1])}
    return {shape[1:-1], *same}
