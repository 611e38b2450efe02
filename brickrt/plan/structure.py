"""Which nodes and subgraphs of a graph are the same but for names, as repeated blocks of a network are.

What follows from shapes alone is computed once for all of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property

from brickrt.graph.ir import Graph, Node
from brickrt.ops.operators.move import Take


class Structures:
    """Compares the nodes of a graph whose tensors have these layouts."""

    def __init__(self, graph: Graph, layouts: Mapping[str, str]) -> None:
        self.graph, self.layouts = graph, layouts
        self.taken = {node.output for node in graph.nodes if isinstance(node.op, Take)}  # readers may read their source

    @cached_property
    def kinds(self) -> list[int]:
        """A number per node, equal for equal operators on equal tensors."""
        known: dict[Hashable, int] = {}
        return [known.setdefault(self._kind(node), len(known)) for node in self.graph.nodes]

    def _kind(self, node: Node) -> Hashable:
        return node.op, tuple(map(self._tensor, node.inputs)), self._tensor(node.output)

    def _tensor(self, name: str) -> Hashable:
        graph = self.graph
        return graph.types[name], self.layouts[name], name in graph.constants, name in graph.outputs, name in self.taken

    def names(self, nodes: Sequence[int]) -> dict[str, int]:
        """The tensors of nodes, numbered in the order in which these read and write them."""
        numbers: dict[str, int] = {}
        for k in nodes:
            node = self.graph.nodes[k]
            for name in (*node.inputs, node.output):
                numbers.setdefault(name, len(numbers))
        return numbers

    def of(self, nodes: Sequence[int]) -> Hashable:
        """A key that is equal for subgraphs that are the same but for names."""
        numbers, inside = self.names(nodes), [(k, self.graph.nodes[k]) for k in nodes]
        return tuple((self.kinds[k], *(numbers[name] for name in (*node.inputs, node.output))) for k, node in inside)
