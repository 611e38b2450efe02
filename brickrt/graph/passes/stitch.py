"""Stitching: reductions over the same rows, and the Maps between and after them, become one row-wise operator.

x ─┬─ mean ─┬────────┐                     x ─ Rowwise
   ├────────┴ centre ┼─ variance ─┐    →
   │                 └────────────┴─ Map

A row is swept again and again while it lies in cache, instead of all rows once per operator (block composition,
FusionStitching §4). Only what nobody else reads goes in.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.graph.passes.fuse import OPERANDS, OPERATIONS, map_expression
from brickrt.graph.rewriter import Rewriter, origins
from brickrt.graph.time_budget import check_time
from brickrt.ops.definitions.elementwise_functions import named
from brickrt.ops.expr import Apply, Arg, Expr, apply, substitute, walk
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise, Step

ROW_BYTES = 1 << 18
"""A longer row does not stay in the cache of a core: each of its sweeps is better shared by all cores."""
ROWS = 2
"""The axis along which images are computed band by band."""
LARGE_IMAGE_BYTES = 1 << 28
"""Bytes of an image that may have to be: its columns, which cross all bands, are summed apart."""
LANES = 16
"""Rows that are swept together where they lie across the lanes of vectors."""
CHEAP_OPERATIONS = 4
"""Operations that every sweep may repeat."""
COMPUTED_ONCE = named(lambda function: function.once)


def stitch(graph: Graph) -> Graph:
    """An equal graph: each chain of reductions and Maps over the same rows is one node."""
    rewriter = Rewriter(graph)
    for output in reversed(list(rewriter.nodes)):
        check_time("joining what leads to", output)
        node = rewriter.nodes.get(output)
        if node is not None and isinstance(node.op, Map):
            _stitch(rewriter, node)
    return rewriter.graph()


def _stitch(rewriter: Rewriter, last: Node) -> None:
    """Joins a Map with what it reads into one node, where that has reductions over rows of its shape."""
    for axes in _axes(rewriter, last):
        members = _members(rewriter, last, axes)
        chain = _StitchedChain(rewriter, [*members, last], axes)
        node = chain.node() if any(isinstance(m.op, Reduce) for m in members) else None
        if node is not None:
            rewriter.put(node)
            for member in reversed(members):
                rewriter.remove(member.output)
            return


def _axes(rewriter: Rewriter, last: Node) -> Iterator[tuple[int, ...]]:
    """The axes of the reductions that a Map reads."""
    producers = [rewriter.nodes[name] for name in last.inputs if name in rewriter.nodes]
    yield from dict.fromkeys(p.op.axes for p in producers if isinstance(p.op, Reduce) and p.op.keepdims)


def _members(rewriter: Rewriter, last: Node, axes: tuple[int, ...]) -> list[Node]:
    """Nodes that only `last` and each other read: Maps of its shape, and reductions of that shape over `axes`."""
    shape, inside = rewriter.types[last.output].shape, {last.output: last}

    def joins(node: Node) -> bool:
        if node.output in rewriter.outputs or not inside.keys() >= rewriter.readers[node.output].keys():
            return False
        if isinstance(node.op, Reduce):
            return node.op.keepdims and node.op.axes == axes and rewriter.types[node.inputs[0]].shape == shape
        return isinstance(node.op, Map) and rewriter.types[node.output].shape == shape and _pays(rewriter, node, last)

    grown = True
    while grown:
        around = dict.fromkeys(name for node in inside.values() for name in node.inputs)
        found = [
            rewriter.nodes[n] for n in around if n in rewriter.nodes and n not in inside and joins(rewriter.nodes[n])
        ]
        inside |= {node.output: node for node in found}
        grown = bool(found)
    return [node for output, node in rewriter.nodes.items() if output in inside and output != last.output]


def _pays(rewriter: Rewriter, node: Node, last: Node) -> bool:
    """Whether a Map is read once, or can be kept, or is so cheap that each sweep may compute it anew."""
    return len(rewriter.readers[node.output]) == 1 or _is_cheap(node) or _may_be_kept(rewriter, node, last)


def _may_be_kept(rewriter: Rewriter, node: Node, last: Node) -> bool:
    """Whether values can be stored where the result will be, from the last reduction to the Map that reads them."""
    kind = rewriter.types[node.output]
    others = [rewriter.nodes[name] for name in rewriter.readers[node.output] if name != last.output]
    only = len(others) == 1 and isinstance(others[0].op, Reduce) and last.output in rewriter.readers[node.output]
    return only and kind == rewriter.types[last.output] and kind.dtype in (np.float32, np.float64)


def _is_cheap(node: Node) -> bool:
    functions = [e.fn for e in walk(map_expression(node)) if isinstance(e, Apply)]
    return len(functions) <= CHEAP_OPERATIONS and not COMPUTED_ONCE.intersection(functions)


@dataclass
class _StitchedChain:
    """Nodes to be joined, in topological order; the last one is the Map that computes the result."""

    rewriter: Rewriter
    members: list[Node]
    axes: tuple[int, ...]

    def node(self) -> Node | None:
        """The row-wise node; None where rows are too long or cross too many bands, or it would read too much."""
        last, names = self.members[-1], self._inputs()
        if names is None or len(names) > OPERANDS or self._row_bytes() > ROW_BYTES or self._has_large_columns():
            return None
        op = self._operator(names)
        if sum(isinstance(e, Apply) for e in _expressions(op)) > OPERATIONS:
            return None
        return Node(last.name, op, tuple(names), last.output, origins(self.members))

    def _row_bytes(self) -> int:
        kind = self.rewriter.types[self.members[-1].output]
        across = 1 if kind.rank - 1 in self.axes else LANES
        return math.prod(kind.shape[axis] for axis in self.axes) * kind.dtype.itemsize * across

    def _has_large_columns(self) -> bool:
        kind = self.rewriter.types[self.members[-1].output]
        return ROWS in self.axes and kind.rank - 1 not in self.axes and kind.nbytes > LARGE_IMAGE_BYTES

    def _inputs(self) -> list[str] | None:
        """What members read from outside, a tensor of the full shape first; None where none of them has it."""
        own = {node.output for node in self.members}
        names = dict.fromkeys(name for node in self.members for name in node.inputs if name not in own)
        shape, types = self.rewriter.types[self.members[-1].output].shape, self.rewriter.types
        full = next((n for n in names if types[n].shape == shape and n not in self.rewriter.constants), None)
        return None if full is None else [full, *(name for name in names if name != full)]

    def _operator(self, names: list[str]) -> Rowwise:
        types, reductions = self.rewriter.types, [n for n in self.members if isinstance(n.op, Reduce)]
        count = len(names)
        known: dict[str, Expr] = {name: Arg(types[name].dtype, k) for k, name in enumerate(names)}
        results = {n.output: Arg(types[n.output].dtype, count + k) for k, n in enumerate(reductions)}
        kept = self._kept(reductions[-1])
        kept_expr, steps = None, []
        for node in self.members:
            operands = {k: known[name] for k, name in enumerate(node.inputs)}
            if isinstance(node.op, Reduce):
                pre = operands[0] if node.op.pre is None else substitute(node.op.pre, operands)
                steps.append(Step(node.op.combine, pre, node.op.post))
                known[node.output] = results[node.output]
                continue
            known[node.output] = substitute(map_expression(node), operands)
            if node is kept:
                kept_expr = known[node.output]
                known[node.output] = Arg(kept_expr.dtype, count + len(reductions))
        expr, steps = _reciprocals(known[self.members[-1].output], steps, kept_expr, count)
        return Rowwise(self.axes, tuple(steps), expr, kept_expr)

    def _kept(self, reduction: Node) -> Node | None:
        """The Map that the last reduction and the result read, if storing it costs less than computing it twice."""
        last = self.members[-1]
        for node in self.members[:-1]:
            if isinstance(node.op, Map) and not _is_cheap(node) and _may_be_kept(self.rewriter, node, last):
                return node if reduction.output in self.rewriter.readers[node.output] else None
        return None


def _expressions(op: Rowwise) -> Iterator[Expr]:
    for expr in (op.expr, op.kept, *(s.pre for s in op.steps), *(s.post for s in op.steps)):
        if expr is not None:
            yield from walk(expr)


def _reciprocals(expr: Expr, steps: list[Step], kept: Expr | None, count: int) -> tuple[Expr, list[Step]]:
    """Replaces divisions by the result of a step with products with its reciprocal, computed once per row.

    Only where nothing else reads that result, not even what is kept for the last sweep.
    """
    divisors = Counter(e.args[1] for e in _divisions(expr) if isinstance(e.args[1], Arg))
    sweeps = [expr, *(s.pre for s in steps), *([] if kept is None else [kept])]
    reads = Counter(e for whole in sweeps for e in walk(whole) if isinstance(e, Arg))
    for divisor, uses in divisors.items():
        number = divisor.index - count
        if not 0 <= number < len(steps) or reads[divisor] != uses or divisor.dtype.kind != "f":
            continue
        step = steps[number]
        combined = step.post or Arg(step.pre.dtype, 0)
        steps = [*steps[:number], Step(step.combine, step.pre, apply("reciprocal", combined)), *steps[number + 1 :]]
        expr = _multiplied(expr, divisor)
    return expr, steps


def _divisions(expr: Expr) -> Iterator[Apply]:
    yield from (e for e in walk(expr) if isinstance(e, Apply) and e.fn == "div")


def _multiplied(expr: Expr, divisor: Expr) -> Expr:
    """The expression with divisions by `divisor` as products with it."""
    if not isinstance(expr, Apply):
        return expr
    fn = "mul" if expr.fn == "div" and expr.args[1] == divisor else expr.fn
    return Apply(expr.dtype, fn, tuple(_multiplied(a, divisor) for a in expr.args))
