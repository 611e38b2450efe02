"""Group norms, which exporters write as norms of a View with one axis per group, keep the shape of their input.

x [N, C, H, W] ─ view [N, G, …] ─┬─ mean over … ─┐            x ─┬─ sums over H and W ─ mean over a group ─┐
                                 └────────────── norm ─   →      └──────────────────────────────────────── norm ─

So the tensor keeps its layout, and is cut along space with what stands around it. Sums are taken in two steps, of the
same elements: Inf and NaN reach what they did.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from brickrt.graph.graph_writer import GraphWriter
from brickrt.graph.ir import Graph, Node
from brickrt.graph.passes.fold import fold
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import Take, View
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.types import Shape, is_floating

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))  # what is summed up, so that sums of channels are not rounded


def unview_norms(graph: Graph) -> Graph:
    """An equal graph, in which norms of groups are of tensors with their own shape."""
    image_of: dict[str, Shape] = {}
    for node in graph.nodes:
        image = _image(graph, node)
        if image is not None and node.output not in image_of:
            nodes = _norm_nodes(graph, node)
            if _is_norm(graph, nodes, image):
                image_of |= dict.fromkeys(nodes, image)
    if not image_of:
        return graph
    return fold(_ImageWriter(graph, image_of).written())


def _image(graph: Graph, node: Node) -> Shape | None:
    """The shape [N, C, …] of which a View makes [N, G, …], with whole channels in a group; None for other nodes."""
    if not isinstance(node.op, View) or graph.out(node).rank != 3 or graph.out(node).size == 0:
        return None
    (n, groups, _), image = graph.out(node).shape, graph.ins(node)[0].shape
    fits = len(image) > 3 and image[0] == n and image[1] % groups == 0
    return image if fits and is_floating(graph.out(node).dtype) else None


def _norm_nodes(graph: Graph, view: Node) -> list[str]:
    """The Maps of the shape that a View gives, and the reductions of such along the last axis, around it."""
    shape, left = graph.out(view).shape, [view.output]
    found: dict[str, None] = {}
    while left:
        name = left.pop()
        around = [graph.nodes[k] for k in graph.consumers.get(name, ())]
        if name in graph.producers:
            around += [graph.nodes[graph.producers[n]] for n in _sources(graph, name) if n in graph.producers]
        for node in around:
            if node.output not in found and _converts(graph, node, shape):
                found[node.output] = None
                left += [node.output] if isinstance(node.op, Map) else []
    return list(found)


def _sources(graph: Graph, name: str) -> tuple[str, ...]:
    node = graph.nodes[graph.producers[name]]
    return node.inputs if isinstance(node.op, Map) else ()


def _converts(graph: Graph, node: Node, shape: Shape) -> bool:
    """Whether a node computes the same of the image, with what varies by group repeated for its channels."""
    kinds = graph.ins(node)
    operands = [kind for kind in kinds if kind.shape != shape]
    small = all(kind.rank in (0, 3) and (kind.rank == 0 or kind.shape[2] == 1) for kind in operands)
    match node.op:
        case Map():
            return small and graph.out(node).shape == shape
        case Reduce(axes=(2,), keepdims=True):
            summed = kinds[0].dtype if node.op.pre is None else node.op.pre.dtype
            return small and kinds[0].shape == shape and {summed, graph.out(node).dtype} <= set(FLOATS)
    return False


def _is_norm(graph: Graph, nodes: list[str], image: Shape) -> bool:
    """Whether among the nodes are reductions, and Maps whose results become images again."""
    found = [graph.nodes[graph.producers[name]] for name in nodes]
    reduces = any(isinstance(node.op, Reduce) for node in found)
    readers = [graph.nodes[k] for node in found for k in graph.consumers.get(node.output, ())]
    return reduces and any(isinstance(r.op, View) and graph.out(r).shape == image for r in readers)


class _ImageWriter(GraphWriter):
    """The new graph, node by node. `names` are images, by the tensors that are Views of them."""

    def __init__(self, graph: Graph, image_of: dict[str, Shape]) -> None:
        super().__init__(graph)
        self.image_of = image_of
        self.names: dict[str, str] = {}

    def place(self, node: Node) -> None:
        """Adds a node, or what it is of images."""
        image = self.image_of.get(node.output)
        if image is None:
            source = self.names.get(node.inputs[0]) if isinstance(node.op, View) else None
            self.add(node if source is None else replace(node, inputs=(source,)))
            return
        inputs = tuple(self.read(name, node, image) for name in node.inputs)
        if isinstance(node.op, Map):
            new = self.emit(node.op, inputs, node)
            self.names[node.output] = new
            self.emit(View(self.graph.out(node).shape), (new,), node, output=node.output)
        else:
            self.reduce(node, inputs, image)

    def reduce(self, node: Node, inputs: tuple[str, ...], image: Shape) -> None:
        """A reduction over space, then one over the channels of each group."""
        op, (n, groups, _) = node.op, self.graph.out(node).shape
        assert isinstance(op, Reduce)
        space = self.emit(Reduce(op.combine, tuple(range(2, len(image))), True, op.pre), inputs, node)
        view = self.emit(View((n, groups, image[1] // groups)), (space,), node)
        self.emit(Reduce(op.combine, (2,), True, None, op.post), (view,), node, output=node.output)

    def read(self, name: str, node: Node, image: Shape) -> str:
        """A tensor as an image, or as what broadcasts to it; those of groups are repeated for each channel."""
        kind = self.graph.types[name]
        if kind.rank == 0 or name in self.names:
            return self.names.get(name, name)
        if kind.size == math.prod(image):
            self.names[name] = self.emit(View(image), (name,), node)
            return self.names[name]
        return self.repeated(name, node, image)

    def repeated(self, name: str, node: Node, image: Shape) -> str:
        """What has an element per group, with one per channel: [N or 1, C or 1, 1…]."""
        n, groups, _ = self.graph.types[name].shape
        ones = (1,) * (len(image) - 2)
        if groups in (1, image[1]):
            return self.emit(View((n, groups, *ones)), (name,), node)
        table = tuple(channel * groups // image[1] for channel in range(image[1]))
        taken = self.emit(Take((None, table, None)), (name,), node)
        return self.emit(View((n, image[1], *ones)), (taken,), node)
