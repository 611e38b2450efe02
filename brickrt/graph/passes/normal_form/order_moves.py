"""Orders moves: what Views, Transposes and Takes in a row do to a tensor is done with fewer copies, or with none.

Transformers that project queries, keys and values at once split the result in many ways, all of which become one:

    view ─ transpose ─┬─ take ─ view              view ─┬─ take ─ transpose
                      ├─ take ─ view         →          ├─ take ─ transpose
                      └─ take ─ view ─ transpose        └─ take ─ transpose

A View costs nothing, nor does a Take of a range where anything but a View reads it; a Transpose is a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from brickrt.graph.ir import Graph, Node
from brickrt.graph.passes.fold import fold
from brickrt.graph.passes.normal_form.move_chain import MoveChain, is_range
from brickrt.graph.rewriter import origins, prune, unused_name
from brickrt.graph.time_budget import check_time
from brickrt.ops.base import Op
from brickrt.ops.operators.move import Take, Transpose, View
from brickrt.ops.types import TensorType


def order_moves(graph: Graph) -> Graph:
    """An equal graph in which chains of moves copy less, where they can."""
    after = graph
    for rows in _sources(graph):
        around = _around(after, rows[0].nodes[0].inputs[0])
        if _copied(_rewritten(around, rows)) < _copied(around):
            after = _rewritten(after, rows)
    return after if after is graph else fold(after)


def _around(graph: Graph, source: str) -> Graph:
    """The part of a graph in which the moves of a tensor decide what is copied: its writer, all moves that follow from
    it, and what reads any of these."""
    names, nodes = [source], {graph.producers[source]} if source in graph.producers else set()
    for name in names:  # grows
        for k in graph.consumers.get(name, ()):
            if k not in nodes and isinstance(graph.nodes[k].op, View | Transpose | Take):
                names.append(graph.nodes[k].output)
            nodes.add(k)
    part = tuple(graph.nodes[k] for k in sorted(nodes))
    inner = {name for name in names if name not in graph.outputs}
    outputs = tuple(node.output for node in part if node.output not in inner)
    return replace(graph, nodes=part, outputs=outputs)


def _rewritten(graph: Graph, rows: Sequence[MoveRow]) -> Graph:
    """The graph with rows of moves as the operators that do the same."""
    by_end = {row.end.output: row for row in rows}
    nodes: list[Node] = []
    types = dict(graph.types)
    for node in graph.nodes:
        nodes += _written(by_end[node.output], types) if node.output in by_end else [node]
    return prune(replace(graph, nodes=tuple(nodes), types=types))


@dataclass(frozen=True)
class MoveRow:
    """Moves one after the other, and the fewest operators that do the same."""

    nodes: tuple[Node, ...]
    ops: tuple[Op, ...]

    @property
    def end(self) -> Node:
        """The last of the moves, which something else reads."""
        return self.nodes[-1]


def _sources(graph: Graph) -> list[list[MoveRow]]:
    """The rows of moves of each tensor that has any with copies."""
    moves = _Moves(graph)
    while (rows := moves.rows()) is None:
        continue
    found: dict[str, list[MoveRow]] = {}
    for row in rows:
        if any(_copies(graph, node) for node in row.nodes):
            found.setdefault(row.nodes[0].inputs[0], []).append(row)
    return list(found.values())


class _Moves:
    """The moves of a graph; rows of them end at `stored` tensors, which are worth storing or cannot be gone through."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.stored = graph, set(graph.outputs)
        self.moves = _moves_beside_copies(graph)
        self.elements: dict[str, int] = {}

    def rows(self) -> list[MoveRow] | None:
        """One row for each tensor that moves make and anything else reads; None where `stored` has grown."""
        known, self.elements = len(self.stored), {}
        for output, node in self.moves.items():
            if isinstance(node.op, Transpose) and self.copied(output) > self.graph.types[output].size:
                self.stored.add(output)
        rows = [self.row(node) for node in self.moves.values() if self.is_end(node.output)]
        return [row for row in rows if row] if len(self.stored) == known else None

    def readers(self, name: str) -> list[Node]:
        """The nodes that read a tensor."""
        return [self.graph.nodes[k] for k in self.graph.consumers.get(name, ())]

    def is_end(self, name: str) -> bool:
        """Whether anything but moves reads a tensor, or it is stored."""
        return name in self.stored or any(reader.output not in self.moves for reader in self.readers(name))

    def copied(self, name: str) -> int:
        """Elements of all tensors that rows through this one end with."""
        if name not in self.elements:
            own = self.graph.types[name].size if self.is_end(name) else 0
            beyond = () if name in self.stored else (n.output for n in self.readers(name) if n.output in self.moves)
            self.elements[name] = own + sum(map(self.copied, beyond))
        return self.elements[name]

    def row(self, node: Node) -> MoveRow | None:
        """The moves that end with a node; None where one of them cannot go through what another makes."""
        check_time("ordering the moves before", node.output)
        nodes = [node]
        while (before := self.moves.get(nodes[0].inputs[0])) is not None and before.output not in self.stored:
            nodes.insert(0, before)
        chain = MoveChain.of(self.graph.types[nodes[0].inputs[0]].shape)
        for one in nodes:
            longer = chain.then(one.op)
            if longer is None:
                self.stored.add(one.inputs[0])
                return None
            chain = longer
        return MoveRow(tuple(nodes), tuple(chain.operators()))


def _moves_beside_copies(graph: Graph) -> dict[str, Node]:
    """The moves of tensors of which any move is a copy, by what they write."""
    moves = [node for node in graph.nodes if _is_move(graph, node)]
    source: dict[str, str] = {}  # of all moves that follow from one tensor
    for node in moves:
        source[node.output] = source.get(node.inputs[0], node.inputs[0])
    copied = {source[node.output] for node in moves if _copies(graph, node)}
    return {node.output: node for node in moves if source[node.output] in copied}


def _is_move(graph: Graph, node: Node) -> bool:
    op = node.op
    if not isinstance(op, View | Transpose | Take) or not graph.out(node).size or node.inputs[0] in graph.constants:
        return False
    return not isinstance(op, Take) or all(map(is_range, op.tables))


def _copied(graph: Graph) -> int:
    """Elements that moves copy."""
    moves = (node for node in graph.nodes if isinstance(node.op, Transpose | Take))
    return sum(graph.out(node).size for node in moves if _copies(graph, node))


def _copies(graph: Graph, node: Node) -> bool:
    """Whether a move is a copy."""
    if not isinstance(node.op, Take):
        return isinstance(node.op, Transpose)
    readers = [graph.nodes[k].op for k in graph.consumers.get(node.output, ())]
    return node.output in graph.outputs or any(isinstance(op, View) for op in readers)


def _written(row: MoveRow, types: dict[str, TensorType]) -> list[Node]:
    """Nodes of a row's operators."""
    end, source = row.end, row.nodes[0].inputs[0]
    nodes: list[Node] = []
    ops = row.ops or (View(types[end.output].shape),)
    for op in ops:
        last = len(nodes) == len(ops) - 1
        output = end.output if last else unused_name(f"{end.output}·{op.name}", types)
        types[output] = op.infer([types[source]])
        nodes.append(Node(end.name if last else output, op, (source,), output, origins(row.nodes)))
        source = output
    return nodes
