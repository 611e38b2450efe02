"""Reorders slices: Takes come first and Transposes last, so that a slice is read where it lies.

Transformers that project queries, keys and values at once split the result in one of two ways:

    view ─ transpose ─┬─ take ─ view              view ─┬─ take ─ transpose ─ view
                      ├─ take ─ view         →          ├─ take ─ transpose ─ view
                      └─ take ─ view ─ transpose        └─ take ─ transpose ─ view

    take ─ view ─ transpose                  →    view ─ take ─ transpose

A contiguous Take costs nothing where a Transpose reads it, and two Transposes in a row are one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from brickrt.graph.ir import Graph, Node
from brickrt.graph.passes.fold import fold
from brickrt.graph.rewriter import prune, unused_name
from brickrt.ops.base import Op
from brickrt.ops.operators.move import Take, Transpose, View
from brickrt.ops.types import Shape

Rule = Callable[[Graph, Node], tuple[str, list[Op]] | None]
"""The tensor that a node's output is made of, and by which operators in a row; None where a rule does not apply."""


def reorder_slices(graph: Graph) -> Graph:
    """An equal graph whose Takes come before its Views and Transposes where that saves copies."""
    for rule in (_take_before_transpose, _view_before_take, _transpose_before_view):
        graph = _apply(graph, rule)
    return graph


def _apply(graph: Graph, rule: Rule) -> Graph:
    found = {node.output: rule(graph, node) for node in graph.nodes}
    if not any(found.values()):
        return graph
    nodes: list[Node] = []
    types = dict(graph.types)
    for node in graph.nodes:
        chain = found[node.output]
        source, ops = chain or ("", [])
        for k, op in enumerate(ops):
            output = node.output if k == len(ops) - 1 else unused_name(f"{node.output}·{op.name}", types)
            types[output] = op.infer([types[source]])
            nodes.append(Node(output if k < len(ops) - 1 else node.name, op, (source,), output, node.origin))
            source = output
        if chain is None:
            nodes.append(node)
    return fold(prune(replace(graph, nodes=tuple(nodes), types=types)))


def _producer(graph: Graph, name: str) -> Node | None:
    return graph.nodes[graph.producers[name]] if name in graph.producers else None


def _readers(graph: Graph, name: str) -> list[Node]:
    """The nodes that read a tensor; none where it is an output of the graph."""
    return [] if name in graph.outputs else [graph.nodes[k] for k in graph.consumers.get(name, ())]


def _contiguous(op: Op) -> bool:
    return isinstance(op, Take) and all(
        t is None or (len(t) > 0 and t[0] >= 0 and t == tuple(range(t[0], t[0] + len(t)))) for t in op.tables
    )


def _take_before_transpose(graph: Graph, node: Node) -> tuple[str, list[Op]] | None:
    """transpose ─ take  →  take ─ transpose, where a Transpose is read by Takes alone that copy no more than it."""
    before = _producer(graph, node.inputs[0]) if isinstance(node.op, Take) else None
    if before is None or not isinstance(before.op, Transpose) or not isinstance(node.op, Take):
        return None
    readers = _readers(graph, before.output)
    taken = sum(graph.out(reader).size for reader in readers)
    if not readers or not all(_contiguous(r.op) for r in readers) or taken > graph.out(before).size:
        return None
    tables: list[tuple[int, ...] | None] = [None] * len(before.op.perm)
    for axis, table in zip(before.op.perm, node.op.tables, strict=True):
        tables[axis] = table
    return before.inputs[0], [Take(tuple(tables)), before.op]


def _view_before_take(graph: Graph, node: Node) -> tuple[str, list[Op]] | None:
    """take ─ view  →  view ─ take, where a View splits the last axis, of which whole pieces are taken."""
    before = _producer(graph, node.inputs[0]) if isinstance(node.op, View) else None
    if before is None or not isinstance(before.op, Take) or not _contiguous(before.op):
        return None
    taken, split = graph.out(before).shape, graph.out(node).shape
    lead, whole = taken[:-1], graph.ins(before)[0].shape
    rest = split[len(taken) :]
    table = before.op.tables[-1]
    if len(_readers(graph, before.output)) != 1 or split[: len(lead)] != lead or not rest or table is None:
        return None
    inner = math.prod(rest)
    if inner == 0 or whole[-1] % inner or table[0] % inner or before.op.tables[:-1] != (None,) * len(lead):
        return None
    pieces = tuple(range(table[0] // inner, table[0] // inner + split[len(lead)]))
    tables = (*[None] * len(lead), pieces, *[None] * len(rest))
    return before.inputs[0], [View((*lead, whole[-1] // inner, *rest)), Take(tables)]


def _transpose_before_view(graph: Graph, node: Node) -> tuple[str, list[Op]] | None:
    """transpose ─ view ─ transpose  →  transpose ─ transpose ─ view, where the View only drops axes of extent 1."""
    view = _producer(graph, node.inputs[0]) if isinstance(node.op, Transpose) else None
    if view is None or not isinstance(view.op, View) or not isinstance(node.op, Transpose):
        return None
    before = _producer(graph, view.inputs[0])
    if before is None or not isinstance(before.op, Transpose):
        return None
    if any(len(_readers(graph, n.output)) != 1 for n in (view, before)):
        return None
    kept = _kept_axes(graph.out(before).shape, graph.out(view).shape)
    if kept is None:
        return None
    dropped = [axis for axis in range(len(before.op.perm)) if axis not in kept]
    perm = (*dropped, *(kept[axis] for axis in node.op.perm))
    return before.output, [Transpose(perm), View(graph.out(node).shape)]


def _kept_axes(before: Shape, after: Shape) -> list[int] | None:
    """The axes that are left when others, of extent 1, are dropped; None where more than that happens."""
    kept: list[int] = []
    for axis, extent in enumerate(before):
        if len(kept) < len(after) and after[len(kept)] == extent and len(before) - axis >= len(after) - len(kept):
            kept.append(axis)
        elif extent != 1:
            return None
    return kept if len(kept) == len(after) else None
