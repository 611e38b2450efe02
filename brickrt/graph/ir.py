"""The specialized layer graph: operators with known shapes, in topological order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.types import TensorType

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True)
class Node:
    """One operator and the names of its tensors; `origin` names the ONNX nodes it stands for."""

    name: str
    op: Op
    inputs: tuple[str, ...]
    output: str
    origin: tuple[str, ...] = ()


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order; tensors by name. Every tensor is an input, a constant or one node's output."""

    nodes: tuple[Node, ...]
    types: dict[str, TensorType]
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def __repr__(self) -> str:
        nbytes = sum(array.nbytes for array in self.constants.values())
        ends = f"inputs={len(self.inputs)}, outputs={len(self.outputs)}"
        return f"Graph(nodes={len(self.nodes)}, {ends}, constant_bytes={nbytes})"

    @cached_property
    def producers(self) -> dict[str, int]:
        """Tensor name → index of the node that writes it."""
        return {node.output: k for k, node in enumerate(self.nodes)}

    @cached_property
    def consumers(self) -> dict[str, tuple[int, ...]]:
        """Tensor name → indices of the nodes that read it, ascending, each once."""
        readers: dict[str, list[int]] = {}
        for k, node in enumerate(self.nodes):
            for name in dict.fromkeys(node.inputs):
                readers.setdefault(name, []).append(k)
        return {name: tuple(ks) for name, ks in readers.items()}

    def ins(self, node: Node) -> list[TensorType]:
        """Types of what a node reads, in its order."""
        return [self.types[name] for name in node.inputs]

    def out(self, node: Node) -> TensorType:
        """Type of what a node writes."""
        return self.types[node.output]

    @cached_property
    def node_flops(self) -> tuple[int, ...]:
        """Arithmetic operations of each node."""
        return tuple(node.op.flops(self.ins(node), self.out(node)) for node in self.nodes)

    def flops(self, nodes: Iterable[Node] | None = None) -> int:
        """Arithmetic operations of some nodes, or of all."""
        return sum(n.op.flops(self.ins(n), self.out(n)) for n in (self.nodes if nodes is None else nodes))

    def to_networkx(self) -> networkx.DiGraph:
        """The graph for drawing and analysis: vertices are node indices, edges carry the name of their `tensor`."""
        import networkx

        g = networkx.DiGraph()
        for k, node in enumerate(self.nodes):
            g.add_node(k, name=node.name, op=node.op)
            for name in node.inputs:
                if name in self.producers:
                    g.add_edge(self.producers[name], k, tensor=name)
        return g

    def verify(self) -> Graph:
        """Checks order, single assignment and types; returns the graph. Raises ValueError that names the node."""
        known = set(self.inputs) | set(self.constants)
        for node in self.nodes:
            for name in node.inputs:
                if name not in known:
                    raise ValueError(f"node '{node.name}' reads '{name}' before anything writes it")
            if node.output in known:
                raise ValueError(f"node '{node.name}' writes '{node.output}', which is already written")
            if node.op.infer(self.ins(node)) != self.out(node):
                raise ValueError(f"node '{node.name}': type of '{node.output}' is not what {node.op.name} gives")
            known.add(node.output)
        for name in self.outputs:
            if name not in known:
                raise ValueError(f"output '{name}' is never written")
        return self
