"""`GraphWriter`, by which passes write a graph anew, node by node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from brickrt.graph.allowance import hold
from brickrt.graph.ir import Graph, Node
from brickrt.graph.rewriter import origins, unused_name
from brickrt.graph.room import own_bytes
from brickrt.ops.base import Op
from brickrt.ops.types import TensorType


class GraphWriter:
    """A graph that is written in place of another: `nodes` by output, in the order in which they are added. Tensors and
    constants of the other keep their names."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: dict[str, Node] = {}
        self.types, self.constants = dict(graph.types), dict(graph.constants)

    def place(self, node: Node) -> None:
        """Adds what a node of the other graph becomes; of passes, that is what they are about."""
        self.add(node)

    def add(self, node: Node) -> None:
        """Adds a node as it is; the types of its tensors are known."""
        self.nodes[node.output] = node

    def emit(self, op: Op, inputs: tuple[str, ...], *stands_for: Node, output: str = "", hint: str = "") -> str:
        """Adds a node in place of others, the last of which gives names; returns the name of its output: `output`, or a
        new one like the hint."""
        last = stands_for[-1]
        name = output or self.unused(hint or f"{last.output}:{op.name}")
        self.types[name] = op.infer([self.types[one] for one in inputs])
        self.add(Node(last.name if output else name, op, inputs, name, origins(stands_for)))
        return name

    def bind(self, array: np.ndarray, hint: str) -> str:
        """Adds a constant and returns its name. Raises BrickError where the model may not hold so much."""
        name = self.unused(hint)
        hold(own_bytes(array, ()))
        self.constants[name], self.types[name] = array, TensorType(array.shape, array.dtype)
        return name

    def unused(self, hint: str) -> str:
        """A name for a new tensor."""
        return unused_name(hint, self.types)

    def written(self) -> Graph:
        """The new graph, with all nodes of the other one in their places."""
        for node in self.graph.nodes:
            self.place(node)
        return replace(self.graph, nodes=tuple(self.nodes.values()), types=self.types, constants=self.constants)
