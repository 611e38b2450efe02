"""Gives every tensor of a graph its layout, with Reorder nodes where a reader needs another one.

Inputs and outputs of the graph are plain. Constants are never reordered at run time: they get the layout that is read,
under a second name where both are, and the engine stores them so.
"""

from __future__ import annotations

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.base import Op
from brickrt.ops.operators.move import Reorder, View
from brickrt.ops.types import TensorType
from brickrt.plan.layout import ImageLayout, Layout
from brickrt.plan.layout_rules import LayoutQuery, choose_layouts


def assign_layouts(graph: Graph, images: ImageLayout) -> tuple[Graph, dict[str, Layout]]:
    """Returns the graph with Reorder nodes, and the layout of every tensor of it.

    A tensor is reordered at most once per layout. A graph output that its node writes blocked keeps its name for the
    plain result; the blocked tensor becomes "NAME:blocked".
    """
    writer = _Writer(graph, images)
    for node in graph.nodes:
        writer.place(node)
    return writer.finish()


class _Writer:
    """Builds the new graph, node by node in order."""

    def __init__(self, graph: Graph, images: ImageLayout) -> None:
        self.graph, self.images = graph, images
        self.nodes: list[Node] = []
        self.types, self.constants = dict(graph.types), dict(graph.constants)
        self.layouts: dict[str, Layout] = dict.fromkeys([*graph.inputs, *graph.constants], "plain")
        self.fixed = set(graph.inputs) | set(graph.outputs)  # constants among these stay as they are
        self.names: dict[tuple[str, Layout, int], str] = {}  # (tensor, layout, rank) → the name it is found under
        self.renamed: dict[str, str] = {}  # graph outputs written blocked

    def place(self, node: Node) -> None:
        inputs = [self.renamed.get(name, name) for name in node.inputs]
        ins, out = [self.types[name] for name in inputs], self.types[node.output]
        constant = [name in self.constants for name in inputs]
        layouts: list[Layout] = ["plain" if self.layouts[name] == "plain" else "blocked" for name in inputs]
        choice = choose_layouts(LayoutQuery(node.op, ins, out, layouts, constant, self.images))
        read = tuple(self.read(name, self.named(layout), out.rank) for name, layout in zip(inputs, choice.ins))
        output = node.output
        if output in self.graph.outputs and choice.out == "blocked":
            output = f"{node.output}:{self.images.layout}"
            self.renamed[node.output] = output
            self.types[output] = out
        self.layouts[output] = self.named(choice.out)
        self.nodes.append(Node(node.name, node.op, read, output, node.origin))

    def named(self, layout: Layout) -> Layout:
        """What the rules call "blocked" by its name on the device."""
        return self.images.layout if layout == "blocked" else layout

    def read(self, name: str, layout: Layout, rank: int) -> str:
        """A name under which the tensor has this layout, and if not plain this rank."""
        key = (name, layout, self.types[name].rank if layout == "plain" else rank)
        if key not in self.names:
            self.names[key] = self._constant(name, layout, rank) if name in self.constants else self._tensor(*key)
        return self.names[key]

    def _tensor(self, name: str, layout: Layout, rank: int) -> str:
        kind = self.types[name]
        if kind.rank < rank:
            shape = (1,) * (rank - kind.rank) + kind.shape
            name = self.read(name, "plain", kind.rank)
            name = self._insert(f"{name}→rank{rank}", View(shape), name, TensorType(shape, kind.dtype), "plain")
        if self.layouts[name] == layout:
            return name
        outputs = {blocked: plain for plain, blocked in self.renamed.items()}
        new = outputs[name] if name in outputs and layout == "plain" else f"{name}→{layout}"
        return self._insert(new, Reorder(layout), name, self.types[name], layout)

    def _insert(self, new: str, op: Op, source: str, kind: TensorType, layout: Layout) -> str:
        self.nodes.append(Node(f"{source}→{layout}" if isinstance(op, Reorder) else new, op, (source,), new))
        self.types[new], self.layouts[new] = kind, layout
        return new

    def _constant(self, name: str, layout: Layout, rank: int) -> str:
        array = self.constants[name]
        if layout == "plain" and self.layouts[name] == "plain":
            self.fixed.add(name)
            return name
        if layout != "plain" and array.ndim == rank and name not in self.fixed:
            self.layouts[name] = layout
            self.fixed.add(name)
            return name
        new = f"{name}→{layout}" if array.ndim == rank or layout == "plain" else f"{name}→{layout}{rank}"
        lifted: np.ndarray = array if layout == "plain" else array.reshape((1,) * (rank - array.ndim) + array.shape)
        self.constants[new], self.types[new] = lifted, TensorType(lifted.shape, lifted.dtype)
        self.layouts[new] = layout
        return new

    def finish(self) -> tuple[Graph, dict[str, Layout]]:
        for blocked in self.renamed.values():
            self.read(blocked, "plain", self.types[blocked].rank)
        used = {name for node in self.nodes for name in node.inputs} | set(self.graph.outputs)
        constants = {name: array for name, array in self.constants.items() if name in used}
        known = used | {node.output for node in self.nodes} | set(self.graph.inputs)
        types = {name: kind for name, kind in self.types.items() if name in known}
        graph = Graph(tuple(self.nodes), types, constants, self.graph.inputs, self.graph.outputs)
        return graph, {name: layout for name, layout in self.layouts.items() if name in known}
