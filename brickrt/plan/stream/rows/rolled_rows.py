"""Few rows of one end of a tensor that are joined to its other end, as when an image is rolled (Swin) or padded by what
lies at its opposite edge.

    x [H] ─┬─ its first s rows ─────────────┐            x [H] ─┬─ its last s rows ───┬─ joined
           └─ the others ───────────┬─ joined                   └─ the others ────────┘

To the left, the first rows are computed with the first that are joined, and kept to the end, instead of all of x. To
the right, what is joined begins with what is known last: those few rows are collected in one pass, for the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.operators.move import Concat, Take

LEAST_ROWS_PER_PART_ROW = 4  # of what the part is of


@dataclass(frozen=True)
class Rolls:
    """Names of parts: `starts` are first rows that are joined last, `ends` last rows that are joined first."""

    starts: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return name in self.starts or name in self.ends


NO_ROLLS = Rolls()


def joins_rows(graph: Graph, node: Node, axes: Mapping[str, int]) -> bool:
    """Whether a node puts rows of several swept tensors one after the other."""
    joins = isinstance(node.op, Concat) and axes.get(node.output) == node.op.axis
    return joins and len(axes.keys() & set(node.inputs)) > 1


def reads_far(graph: Graph, node: Node, axes: Mapping[str, int], rows: int) -> bool:
    """Whether a node moves swept rows by more than so many, as the sums over all rows above do."""
    axis = axes.get(node.output)
    if not isinstance(node.op, Take) or axis is None or (table := node.op.tables[axis]) is None:
        return False
    at = np.asarray(table, np.int64)
    here = np.arange(len(at)) * graph.ins(node)[0].shape[axis] / max(1, len(at))
    return bool((np.abs(at - here) > rows)[at >= 0].any())


def find_rolls(graph: Graph, axes: Mapping[str, int]) -> Rolls:
    """The parts of swept tensors; `axes` are those along which rows lie."""
    starts, ends = set[str](), set[str]()
    for node in graph.nodes:
        if not isinstance(node.op, Concat) or axes.get(node.output) != node.op.axis:
            continue
        end = 0
        for name in node.inputs:
            begin, end = end, end + graph.types[name].shape[node.op.axis]
            first = _first_row(graph, axes, name, node)
            if first is not None:
                most = graph.out(node).shape[node.op.axis] // 2
                (starts if begin - first > most else ends if first - begin > most else set()).add(name)
    return Rolls(frozenset(starts), frozenset(ends))


def _first_row(graph: Graph, axes: Mapping[str, int], name: str, reader: Node) -> int | None:
    """Where few rows of a swept tensor begin in it, if nobody else reads them; else None."""
    k = graph.producers.get(name)
    if k is None or name in graph.outputs or len(graph.consumers[name]) > 1 or reader.inputs.count(name) > 1:
        return None
    op, source = graph.nodes[k].op, graph.nodes[k].inputs[0]
    axis = axes.get(name)
    if not isinstance(op, Take) or axis is None or axes.get(source) != axis:
        return None
    table, others = op.tables[axis], [t for at, t in enumerate(op.tables) if at != axis]
    few = table is not None and 0 < LEAST_ROWS_PER_PART_ROW * len(table) <= graph.types[source].shape[axis]
    if table is None or not few or any(t is not None for t in others):
        return None
    return table[0] if table == tuple(range(table[0], table[0] + len(table))) else None
