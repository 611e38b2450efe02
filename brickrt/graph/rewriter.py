"""`Rewriter`, by which folding and fusing change graphs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.graph.time_budget import check_time
from brickrt.ops.types import TensorType

BETWEEN_LOOKS = 16  # nodes of a walk, most of which take less than to look at the clock


class Rewriter:
    """A graph being changed: its nodes by output, in topological order, and the readers of every tensor."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = {node.output: node for node in graph.nodes}
        self.types = dict(graph.types)
        self.constants = dict(graph.constants)
        self.inputs, self.outputs = graph.inputs, graph.outputs
        self.readers: dict[str, dict[str, None]] = {}
        for node in graph.nodes:
            self._read(node)

    def graph(self) -> Graph:
        """The graph as it is now, without what no output needs any more."""
        return prune(Graph(tuple(self.nodes.values()), self.types, self.constants, self.inputs, self.outputs))

    def walk(self) -> Iterator[Node]:
        """The nodes in their present order, each as it is when its turn comes; those removed by then are left out."""
        for k, output in enumerate(list(self.nodes)):
            if output in self.nodes:
                if k % BETWEEN_LOOKS == 0:
                    check_time("simplifying what writes", output)
                yield self.nodes[output]

    def order(self) -> dict[str, int]:
        """Position of each node by its output."""
        return {output: k for k, output in enumerate(self.nodes)}

    def put(self, node: Node) -> None:
        """Replaces the node with the same output; the type of the output is inferred anew."""
        self._forget(self.nodes[node.output])
        self.nodes[node.output] = node
        self.types[node.output] = node.op.infer([self.types[name] for name in node.inputs])
        self._read(node)

    def insert(self, node: Node, before: str) -> None:
        """Adds a node in front of the one that writes `before`."""
        self.types[node.output] = node.op.infer([self.types[name] for name in node.inputs])
        nodes, self.nodes = self.nodes, {}
        for output, other in nodes.items():
            if output == before:
                self.nodes[node.output] = node
            self.nodes[output] = other
        self._read(node)

    def remove(self, output: str) -> None:
        """Drops a node that nobody reads any more."""
        self._forget(self.nodes.pop(output))

    def only_reader(self, name: str) -> Node | None:
        """The node that reads a tensor, if there is just one and the tensor is no output of the graph."""
        readers = self.readers.get(name, {})
        return self.nodes[next(iter(readers))] if len(readers) == 1 and name not in self.outputs else None

    def constant(self, array: np.ndarray, hint: str) -> str:
        """Adds a constant and returns its name."""
        name = unused_name(hint, self.types)
        self.constants[name] = array
        self.types[name] = TensorType(array.shape, array.dtype)
        return name

    def substitute(self, output: str, other: str) -> bool:
        """Makes all readers of this node's output read `other`, of the same type, and drops the node.

        An output of the graph keeps its name: the node that writes `other` takes it over. False where none can.
        """
        if output in self.outputs:
            if other not in self.nodes or other in self.outputs:
                return False
            self._rename(other, output)
            return True
        node = self.nodes[output]
        for reader in [self.nodes[key] for key in self.readers.get(output, {})]:
            self.put(replace(reader, inputs=tuple(other if name == output else name for name in reader.inputs)))
        self.remove(node.output)
        return True

    def _rename(self, old: str, new: str) -> None:
        """The writer of `old` writes `new` instead, in place of the node that wrote it."""
        self.remove(new)
        writer, readers = self.nodes[old], self.readers.pop(old, {})
        self.nodes = {
            new if output == old else output: replace(node, output=new) if node is writer else node
            for output, node in self.nodes.items()
        }
        for key in writer.inputs:
            self.readers[key].pop(old, None)
        self._read(self.nodes[new])
        for key in readers:
            node = self.nodes[key]
            self.nodes[key] = replace(node, inputs=tuple(new if name == old else name for name in node.inputs))
            self._read(self.nodes[key])

    def _read(self, node: Node) -> None:
        for name in node.inputs:
            self.readers.setdefault(name, {})[node.output] = None

    def _forget(self, node: Node) -> None:
        for name in node.inputs:
            self.readers[name].pop(node.output, None)


def unused_name(hint: str, taken: Container[str]) -> str:
    """The hint, with a number after it where it is taken."""
    name, k = hint, 1
    while name in taken:
        name, k = f"{hint}_{k}", k + 1
    return name


def origins(nodes: Iterable[Node]) -> tuple[str, ...]:
    """The ONNX nodes that several nodes stand for, each once."""
    return tuple(dict.fromkeys(name for node in nodes for name in node.origin))


def prune(graph: Graph) -> Graph:
    """The graph without nodes, constants and inputs that no output depends on."""
    needed, kept = set(graph.outputs), []
    for node in reversed(graph.nodes):
        if node.output in needed:
            kept.append(node)
            needed.update(node.inputs)
    return Graph(
        nodes=tuple(reversed(kept)),
        types={name: t for name, t in graph.types.items() if name in needed},
        constants={name: a for name, a in graph.constants.items() if name in needed},
        inputs=tuple(name for name in graph.inputs if name in needed),
        outputs=graph.outputs,
    )


def rename(graph: Graph, names: Mapping[str, str]) -> Graph:
    """The graph with tensors that nodes write renamed."""
    if not names:
        return graph
    nodes = tuple(
        replace(n, inputs=tuple(names.get(i, i) for i in n.inputs), output=names.get(n.output, n.output))
        for n in graph.nodes
    )
    return replace(graph, nodes=nodes, types={names.get(name, name): t for name, t in graph.types.items()})
