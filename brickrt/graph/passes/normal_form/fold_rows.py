"""Folds batch dimensions into the rows of products of few rows, where the second factor is the same matrix for all.

    x [197, 1, 768] ─ MatMul w ─ Map      →      x ─ View [1, 197, 768] ─ MatMul w ─ Map ─ View [197, 1, 768]

A register tile spans rows of one matrix: products of one row each reach a tenth of the speed. What stands around such a
product and treats every row alike (elementwise steps, norms of rows, slices of columns) goes along, so that Views stand
only where rows mean something else; there they meet other Views, and vanish. For their sake products take on and drop
dimensions of extent 1 too: what is added to a result behind a View of it can then be added in the product's tiles.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from brickrt.graph.graph_writer import GraphWriter
from brickrt.graph.ir import Graph, Node
from brickrt.graph.passes.fold import fold
from brickrt.graph.rewriter import prune
from brickrt.graph.time_budget import check_time
from brickrt.ops.base import Op
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Concat, Take, View
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.types import Shape, TensorType

FEW_ROWS = 32
"""Products of matrices with more rows are as fast as larger ones."""


@dataclass(frozen=True)
class Rows:
    """The dimensions of a tensor but the last, and what they become: those from `first` on are its rows."""

    lead: Shape
    first: int
    folded: Shape

    @staticmethod
    def along_one(lead: Shape, first: int) -> Rows:
        """The rows along the last dimension; the others that they were along have extent 1."""
        inner = lead[first:]
        return Rows(lead, first, (*lead[:first], *(1,) * (len(inner) - 1), math.prod(inner)))

    def has(self, kind: TensorType) -> bool:
        """Whether a tensor has these rows."""
        return kind.shape[:-1] == self.lead and kind.rank > 0

    def allows(self, kind: TensorType) -> bool:
        """Whether a tensor that is broadcast to these rows is the same for all that are folded."""
        inner = len(self.lead) - self.first
        most = min(len(self.lead), len(self.folded)) + 1
        return kind.rank <= most and all(e == 1 for e in kind.shape[:-1][-inner:])


def fold_rows(graph: Graph) -> Graph:
    """An equal graph in which no product has few rows that can have more, and Views of products meet others."""
    regions: dict[str, Rows] = {}
    found = [(rows, node) for node in graph.nodes if (rows := _rows_of_product(graph, node)) is not None]
    for rows, node in sorted(found, key=lambda pair: pair[0].first):
        if node.output not in regions:
            regions |= dict.fromkeys(_region(graph, rows, node, regions), rows)
    graph = _folded(graph, regions) if regions else graph
    regions = {}
    for node in graph.nodes:
        viewed = _rows_of_view(graph, node) if node.output not in regions else None
        region = _region(graph, viewed, node, regions) if viewed else set()
        if viewed and _views_saved(graph, viewed, region) > 0:
            regions |= dict.fromkeys(region, viewed)
    return _folded(graph, regions) if regions else graph


def _rows_of_product(graph: Graph, node: Node) -> Rows | None:
    """The rows of a product that has too few in each of several matrices; None for any other node."""
    if not isinstance(node.op, MatMul) or not graph.out(node).size:
        return None
    a, b = graph.ins(node)[:2]
    lead, batch = a.shape[:-1], (*(1,) * (a.rank - b.rank), *b.shape[:-2])
    first = next((axis for axis in reversed(range(len(batch))) if batch[axis] != 1), -1) + 1
    rows = Rows.along_one(lead, first)
    few = lead[-1] < FEW_ROWS and math.prod(lead[first:]) > lead[-1]
    return rows if few and a.rank >= b.rank and _follows(graph, rows, node) else None


def _rows_of_view(graph: Graph, node: Node) -> Rows | None:
    """The rows of a product as the only View of it has them, which puts other dimensions of extent 1 around them."""
    readers = graph.consumers.get(node.output, ())
    if not isinstance(node.op, MatMul) or len(readers) != 1 or node.output in graph.outputs:
        return None
    view, lead = graph.nodes[readers[0]], graph.out(node).shape[:-1]
    target, columns = graph.out(view).shape[:-1], graph.out(view).shape[-1:]
    long = [[e for e in extents if e != 1] for extents in (lead, target)]
    same = isinstance(view.op, View) and columns == graph.out(node).shape[-1:] and long[0] == long[1]
    rows = Rows(lead, 0, target)
    return rows if same and target[-1:] == lead[-1:] and target != lead and _follows(graph, rows, node) else None


def _views_saved(graph: Graph, rows: Rows, region: set[str]) -> int:
    """Views that vanish when a region gets these rows, less those that are added."""
    inputs = {name for output in region for name in graph.nodes[graph.producers[output]].inputs} - region
    saved = 0
    for name in inputs - graph.constants.keys():
        if rows.has(graph.types[name]):
            maker = graph.nodes[graph.producers[name]] if name in graph.producers else None
            if maker is None or not isinstance(maker.op, View):
                saved -= 1
            elif graph.ins(maker)[0].shape[:-1] == rows.folded:
                saved += 1
    for name in region:
        readers = [graph.nodes[k] for k in graph.consumers.get(name, ()) if graph.nodes[k].output not in region]
        plain = [node for node in readers if not isinstance(node.op, View)]
        saved -= bool(plain) or name in graph.outputs
        saved += sum(isinstance(n.op, View) and graph.out(n).shape[:-1] == rows.folded for n in readers)
    return saved


def _region(graph: Graph, rows: Rows, seed: Node, taken: Container[str]) -> set[str]:
    """The nodes around a product that compute the same with its rows folded, by output; those `taken` aside."""
    found, to_visit = {seed.output}, [seed]
    while to_visit:
        node = to_visit.pop()
        check_time("folding rows around what writes", node.output)
        for near in _neighbours(graph, rows, node):
            if near.output not in found and near.output not in taken and _follows(graph, rows, near):
                found.add(near.output)
                to_visit.append(near)
    return found


def _neighbours(graph: Graph, rows: Rows, node: Node) -> Iterator[Node]:
    """The nodes that write or read tensors with these rows that a node has."""
    for name in dict.fromkeys((*node.inputs, node.output)):
        if rows.has(graph.types[name]) and name not in graph.constants:
            if name in graph.producers:
                yield graph.nodes[graph.producers[name]]
            yield from (graph.nodes[k] for k in graph.consumers.get(name, ()))


def _follows(graph: Graph, rows: Rows, node: Node) -> bool:
    """Whether a node computes each row of its output of the same row of its inputs, and what is equal for all."""
    ins, last = graph.ins(node), len(rows.lead)
    if not rows.has(graph.out(node)):
        return False
    match node.op:
        case MatMul():
            matrix = TensorType((*ins[1].shape[:-2], 1, 1), ins[1].dtype)
            return rows.has(ins[0]) and rows.allows(matrix) and all(map(rows.allows, ins[node.op.factors :]))
        case Map():
            return all(rows.has(kind) or rows.allows(kind) for kind in ins)
        case Reduce(axes=axes, keepdims=True):
            return axes == (last,) and all(rows.has(kind) or rows.allows(kind) for kind in ins)
        case Concat(axis=axis):
            return axis == last
        case Take(tables=tables):
            return all(table is None for table in tables[:-1])
    return False


def _folded(graph: Graph, regions: Mapping[str, Rows]) -> Graph:
    """The graph with the rows of regions folded, and Views around these."""
    return fold(prune(_RowWriter(graph, regions).written()))


class _RowWriter(GraphWriter):
    """The new graph, node by node."""

    def __init__(self, graph: Graph, regions: Mapping[str, Rows]) -> None:
        super().__init__(graph)
        self.regions = regions
        self.names: dict[tuple[str, Rows], str] = {}  # of tensors with folded rows

    def place(self, node: Node) -> None:
        """Adds a node, in a region with folded operands and followed by a View to the rows it had."""
        rows = self.regions.get(node.output)
        if rows is None:
            self.add(node)
            return
        second = node.inputs[1 : node.op.factors] if isinstance(node.op, MatMul) else ()
        inputs = tuple(name if name in second else self.folded(name, rows) for name in node.inputs)
        output = self.name(node.output, rows)
        op = _at_rank(node.op, len(rows.folded) - len(rows.lead))
        self.add(replace(node, op=op, inputs=inputs, output=output))
        view = View(self.graph.out(node).shape)
        self.add(Node(f"{node.name}:rows", view, (output,), node.output, node.origin))

    def folded(self, name: str, rows: Rows) -> str:
        """The name of a tensor with folded rows, which a View makes where nothing did yet."""
        if (name, rows) in self.names or not rows.has(self.graph.types[name]):
            return self.names.get((name, rows), name)
        new = self.name(name, rows)
        if name in self.constants:
            self.constants[new] = np.reshape(self.constants[name], self.types[new].shape)
        else:
            self.add(Node(new, View(self.types[new].shape), (name,), new))
        return new

    def name(self, name: str, rows: Rows) -> str:
        """A new name for a tensor with folded rows."""
        kind = self.types[name]
        self.names[name, rows] = new = self.unused(f"{name}·rows")
        self.types[new] = TensorType((*rows.folded, kind.shape[-1]), kind.dtype)
        return new


def _at_rank(op: Op, more: int) -> Op:
    """The operator on tensors with so many more dimensions before the last."""
    match op:
        case Reduce(axes=(axis,)):
            return replace(op, axes=(axis + more,))
        case Concat(axis=axis):
            return Concat(axis + more)
        case Take(tables=(*lead, last)):
            return replace(op, tables=(*(None,) * (len(lead) + more), last))
    return op
