"""Splits means and variances of the same elements of a tensor: partial moments of it are enough for both.

x ─┬─ sum ───┬───────────────         x ─ moments of segments ─ of rows ─┬─ sum ───┬───────────────
   └─────────┴ squares of x - m   →                                      └─────────┴ squares of x - m

Otherwise the squares could not be summed before the mean is known: they would read the tensor again, in a pass of
their own where it is swept. What m is does not matter: that of a group of channels is computed from their sums. Only
for CPUs: on a GPU the two reductions of a row share a block, or are split by `split_long_reductions`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.graph.rewriter import unused_name
from brickrt.ops.expr import Arg, Expr, apply, cast, const, substitute, used_operands
from brickrt.ops.operators.partial_moments import PartialMoments, element_type
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.types import TensorType, is_floating
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.layout import Layout
from brickrt.plan.merging import split_reductions

F64 = np.dtype(np.float64)
PLAIN_LENGTH = 1024  # elements of a segment of a plain tensor: its lanes are added up once per segment
SHORTEST_ROW = 8  # of shorter ones there would hardly be fewer moments than elements

Key = tuple[str, tuple[int, ...]]


def split_moments(graph: Graph, layouts: Mapping[str, Layout], device: DeviceSpec) -> tuple[Graph, dict[str, Layout]]:
    """The graph in which sums, and sums of squared differences, of tensors that exceed a core's cache read partial
    moments, where there are both over the same axes."""
    sums = {key for node in graph.nodes if (key := _sum_of(graph, node))}
    pairs = {key for node in graph.nodes if (key := _squares_of(graph, node)) in sums and _splits(graph, key, device)}
    writer = _MomentsWriter(graph, dict(layouts), device.l2)
    for node in graph.nodes:
        key = _sum_of(graph, node) or _squares_of(graph, node)
        writer.nodes.append(writer.finished(node, key) if key in pairs else node)
    types, constants = writer.types, writer.constants
    return replace(graph, nodes=tuple(writer.nodes), types=types, constants=constants), writer.layouts


def _splits(graph: Graph, key: Key, device: DeviceSpec) -> bool:
    x = graph.types[key[0]]
    return x.nbytes > device.l2 and x.shape[-1] >= SHORTEST_ROW and x.rank - 1 in key[1]


def _sum_of(graph: Graph, node: Node) -> Key | None:
    """The tensor and the axes that a node sums up, in the type in which moments are."""
    op = node.op
    if not isinstance(op, Reduce) or op.combine != "sum" or len(node.inputs) != 1:
        return None
    x = graph.types[node.inputs[0]]
    return (node.inputs[0], op.axes) if _is_element(op.pre or Arg(x.dtype, 0), x) else None


def _squares_of(graph: Graph, node: Node) -> Key | None:
    """The tensor and the axes that a node sums up the squared differences of, from what is the same along them."""
    op = node.op
    difference = op.difference(graph.ins(node)) if isinstance(op, Reduce) else None
    if not isinstance(op, Reduce) or difference is None or not _is_element(difference[0], graph.ins(node)[0]):
        return None
    return node.inputs[0], op.axes


def _is_element(expr: Expr, x: TensorType) -> bool:
    """Whether an expression is an element of a tensor in the type in which they are summed up."""
    return is_floating(x.dtype) and expr == cast(Arg(x.dtype, 0), element_type(x.dtype))


@dataclass(frozen=True)
class _Parts:
    """Moments of parts of a tensor, found in the tensors `names`: what is to be added up for the sum of all elements,
    and for the squares of their differences from m, the operand after those. All are in float64."""

    names: tuple[str, ...]
    sums: Expr
    squares: Expr


class _MomentsWriter:
    """Builds the new graph, node by node in order."""

    def __init__(self, graph: Graph, layouts: dict[str, Layout], cache: int) -> None:
        self.types, self.constants, self.layouts = dict(graph.types), dict(graph.constants), layouts
        self.graph, self.cache = graph, cache
        self.nodes: list[Node] = []
        self.parts: dict[Key, _Parts] = {}

    def finished(self, node: Node, key: Key) -> Node:
        """The node, reading moments."""
        op, ins = node.op, self.graph.ins(node)
        assert isinstance(op, Reduce)
        difference, combined = op.difference(ins), cast(Arg(F64, 0), element_type(ins[0].dtype))
        op = replace(op, post=combined if op.post is None else substitute(op.post, {0: combined}))
        if key not in self.parts:
            self.parts[key] = self._parts(node, key)
        parts = self.parts[key]
        if difference is None:
            pre = None if isinstance(parts.sums, Arg) else parts.sums
            names = tuple(name for k, name in enumerate(parts.names) if k in used_operands(parts.sums))
            return replace(node, op=replace(op, pre=pre), inputs=names)
        count, middle = len(parts.names), difference[1]
        moved = {k: Arg(ins[k].dtype, k - 1 + count) for k in used_operands(middle)}
        pre = substitute(parts.squares, {count: cast(substitute(middle, moved), F64)})
        return replace(node, op=replace(op, pre=pre), inputs=(*parts.names, *node.inputs[1:]))

    def _parts(self, node: Node, key: Key) -> _Parts:
        """The moments of segments, or where these exceed a core's cache those of each row, if rows are reduced as
        well."""
        x, axes = key
        segments = self._segments(node, x)
        inner = tuple(axis for axis in axes if axis > 2)
        large = self.types[segments.names[0]].nbytes > self.cache
        return self._rows(node, x, segments, inner) if large and 0 < len(inner) < len(axes) else segments

    def _segments(self, node: Node, x: str) -> _Parts:
        """The segments of a tensor; `where` tells sums, which have a count, from squares."""
        kind = self.types[x]
        op = PartialMoments(PLAIN_LENGTH if self.layouts[x] == "plain" else split_reductions.LENGTH)
        moments = self._add(node, "moments", op, (x,), self.layouts[x])
        extent = kind.shape[-1]
        counts = np.zeros((op.segments(extent), 2))
        counts[:, 0] = np.diff(np.arange(0, extent, op.length), append=extent)
        name = self._constant(f"{moments}:counts", counts.reshape((1,) * (kind.rank - 1) + (-1,)))
        value, count, middle = (Arg(F64, k) for k in range(3))
        is_sum = apply("gt", count, const(0, F64))
        squares = apply("where", is_sum, _around(value, count, middle), value)
        return _Parts((moments, name), apply("where", is_sum, value, const(0, F64)), squares)

    def _rows(self, node: Node, x: str, segments: _Parts, axes: tuple[int, ...]) -> _Parts:
        """The moments of each row: of an image of any width two numbers per row and channel are left."""
        layout, kind = self.layouts[x], self.types[x]
        size = const(math.prod(kind.shape[axis] for axis in axes), F64)
        sums = self._add(node, "sums", Reduce("sum", axes, True, segments.sums), segments.names, layout)
        total, rest, middle = (Arg(F64, k) for k in range(3))
        pre = substitute(segments.squares, {middle.index: apply("div", middle, size)})
        squares = self._add(node, "squares", Reduce("sum", axes, True, pre), (*segments.names, sums), layout)
        return _Parts((sums, squares), total, apply("add", rest, _around(total, size, middle)))

    def _add(self, node: Node, what: str, op: PartialMoments | Reduce, inputs: tuple[str, ...], layout: Layout) -> str:
        name = unused_name(f"{node.output}:{what}", self.types)
        self.types[name] = op.infer([self.types[i] for i in inputs])
        self.layouts[name] = layout
        self.nodes.append(Node(f"{node.name}:{what}", op, inputs, name, node.origin))
        return name

    def _constant(self, name: str, array: np.ndarray) -> str:
        name = unused_name(name, self.types)
        self.constants[name], self.types[name] = array, TensorType(array.shape, array.dtype)
        self.layouts[name] = "plain"
        return name


def _around(total: Expr, count: Expr, middle: Expr) -> Expr:
    """What `count` elements of this sum add to the squares of the differences from `middle`, were they all alike."""
    difference = apply("sub", apply("div", total, count), middle)
    return apply("mul", count, apply("mul", difference, difference))
