"""Splits sums over all positions of a flattened image, and products along them: first of parts, then of these.

x [N, C, HW] ─ sum ─ y [N, C]        →  x ─ view [N, C, S, L] ─ sum ─ [N, C, S] ─ sum ─ y

a [N, C, HW] ─ product ─ [N, C, D]   →  a ─ view [N, C, S, L] ─ transpose [N, S, C, L] ─ product ─ [N, S, C, D] ─ sum
b [N, HW, D] ────┘                      b ─ view [N, S, L, D] ──────────────────────────────┘

As it was, a core would go through all positions by itself, and a network that is swept would need all of them at once,
as in attention between channels (Restormer, XCiT) and linear attention. Parts of a product cost copies of its rows: so
it has them where its factors exceed the cache that cores share, and it would be held whole in memory, or where cores
would have nothing to do. Only for CPUs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from brickrt.graph.ir import Graph, Node
from brickrt.graph.rewriter import unused_name
from brickrt.ops.base import Op
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Transpose, View
from brickrt.ops.operators.reduce import Reduce
from brickrt.plan.cost.constants import PRODUCT_SHARE
from brickrt.plan.cost.roofline import compute_us
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.layout import Layout

POSITIONS = 4096  # fewer are not split
PARTS_BYTES = 2**24  # of the products of all parts
LEAST_POSITIONS_PER_RESULT = 16  # or per row and column of a product
ROWS = 4  # of a product, at least, in each piece that a core computes


def split_positions(graph: Graph, layouts: Mapping[str, Layout], device: DeviceSpec) -> tuple[Graph, dict[str, Layout]]:
    """The graph in which long sums and products of tensors that exceed a core's cache are of parts."""
    writer = _PartsWriter(graph, dict(layouts))
    for node in graph.nodes:
        if isinstance(node.op, Reduce) and (length := _sum_length(graph, layouts, device, node)):
            writer.write_sum(node, node.op, length)
        elif isinstance(node.op, MatMul) and (length := _product_length(graph, device, node)):
            writer.write_product(node, node.op, length)
        else:
            writer.nodes.append(node)
    return replace(graph, nodes=tuple(writer.nodes), types=writer.types), writer.layouts


def _sum_length(graph: Graph, layouts: Mapping[str, Layout], device: DeviceSpec, node: Node) -> int:
    """Positions of a part of a reduction; 0 where it is not split."""
    op, (x, *others) = node.op, graph.ins(node)
    assert isinstance(op, Reduce)
    plain = all(layouts[name] == "plain" for name in (*node.inputs, node.output))
    if not plain or x.nbytes <= device.l2 or node.inputs[0] in graph.constants or x.rank - 1 not in op.axes:
        return 0
    if x.size > x.shape[-1] ** 2 // LEAST_POSITIONS_PER_RESULT:  # there are rows enough for all cores
        return 0
    wide = (x.dtype if op.pre is None else op.pre.dtype).itemsize >= 4  # parts are not rounded to halves
    fits = all(not t.rank or t.shape[-1] == 1 or t.shape[-1] == x.shape[-1] for t in others)
    fixed = any(name in graph.constants and t.rank for name, t in zip(node.inputs[1:], others, strict=True))
    return _part(x.shape[-1]) if wide and fits and not fixed else 0


def _product_length(graph: Graph, device: DeviceSpec, node: Node) -> int:
    """Positions of a part of a product; 0 where it is not split."""
    op, (a, b) = node.op, graph.ins(node)[:2]
    assert isinstance(op, MatMul)
    rows, depth, columns = *a.shape[-2:], b.shape[-1]
    known = any(name in graph.constants for name in node.inputs[:2])
    floats = a.dtype == b.dtype and a.dtype.kind == "f" and a.dtype.itemsize >= 4
    if (
        known
        or op.bias
        or not floats
        or a.nbytes + b.nbytes <= device.l2
        or depth < LEAST_POSITIONS_PER_RESULT * max(rows, columns)
    ):
        return 0
    result = math.prod(graph.out(node).shape) * a.dtype.itemsize
    length = _part(depth, most=max(2, PARTS_BYTES // max(1, result)))
    held = a.nbytes + b.nbytes > device.shared[1]
    return length if length and (held or _saves(graph, node, device, depth // length)) else 0


def _saves(graph: Graph, node: Node, device: DeviceSpec, parts: int) -> bool:
    """Whether a product in so many parts, which all cores share, takes less time than one that is cut by its rows, with
    the copy of these and the sums of the parts."""
    a, b = graph.ins(node)[:2]
    out = graph.out(node)
    pieces = math.prod(out.shape[:-2]) * -(-out.shape[-2] // ROWS)
    core_us = compute_us(node.op.flops([a, b], out) / 2 / device.lanes, device, PRODUCT_SHARE)
    moved = 2 * (a.nbytes + parts * out.nbytes)
    shared_us = moved / device.bandwidth[device.shared[0]] / 1e3
    return core_us / device.cores + shared_us < core_us / min(device.cores, pieces)


def _part(positions: int, most: int = POSITIONS) -> int:
    """The divisor of so many positions that is nearest to their root, a row of a square image, and makes at most so
    many parts; 0 where there are few positions or none is near."""
    if positions < POSITIONS:
        return 0
    root = math.isqrt(positions)
    small = [d for d in range(1, root + 1) if positions % d == 0]
    lengths = [d for d in (*small, *(positions // d for d in small)) if 2 <= positions // d <= most and d >= 16]
    return min(lengths, key=lambda d: abs(math.log(d / root)), default=0)


class _PartsWriter:
    """Builds the new graph, node by node in order."""

    def __init__(self, graph: Graph, layouts: dict[str, Layout]) -> None:
        self.graph, self.layouts, self.types = graph, layouts, dict(graph.types)
        self.nodes: list[Node] = []

    def write_sum(self, node: Node, op: Reduce, length: int) -> None:
        """The reduction of each part, and that of the parts."""
        rank = self.types[node.inputs[0]].rank
        cut = tuple(self._cut(node, k, name, length) for k, name in enumerate(node.inputs))
        parts = self._add(node, "parts", Reduce(op.combine, (rank,), False, op.pre), cut)
        self.nodes.append(replace(node, op=replace(op, pre=None), inputs=(parts,)))

    def _cut(self, node: Node, k: int, name: str, length: int) -> str:
        """An operand whose last axis is cut."""
        shape = self.types[name].shape
        last = (shape[-1] // length, length) if shape and shape[-1] > 1 else (1, 1)
        return self._add(node, f"cut{k}", View((*shape[:-1], *last)), (name,)) if shape else name

    def write_product(self, node: Node, op: MatMul, length: int) -> None:
        """The product of each part, their sum, and the epilogue."""
        a, b = (self.types[name].shape for name in node.inputs[:2])
        parts = a[-1] // length
        rows = self._add(node, "rows", View((*a[:-1], parts, length)), node.inputs[:1])
        rank = len(a) + 1
        perm = (*range(rank - 3), rank - 2, rank - 3, rank - 1)
        rows = self._add(node, "turned", Transpose(perm), (rows,))
        columns = self._add(node, "columns", View((*b[:-2], parts, length, b[-1])), node.inputs[1:2])
        products = self._add(node, "parts", MatMul(halves=op.halves), (rows, columns))
        total = Reduce("sum", (self.types[products].rank - 3,), False)
        if op.epilogue is None:
            self.nodes.append(replace(node, op=total, inputs=(products,)))
            return
        whole = self._add(node, "sum", total, (products,))
        self.nodes.append(replace(node, op=Map(op.epilogue), inputs=(whole, *node.inputs[2:])))

    def _add(self, node: Node, what: str, op: Op, inputs: tuple[str, ...]) -> str:
        name = unused_name(f"{node.output}:{what}", self.types)
        self.types[name] = op.infer([self.types[i] for i in inputs])
        self.layouts[name] = "plain"
        self.nodes.append(Node(f"{node.name}:{what}", op, inputs, name, node.origin))
        return name
