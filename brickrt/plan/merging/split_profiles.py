"""Splits reductions over the rows of images that keep their columns: blocks of rows first, then blocks of these.

x [N, C, H, W] ─ reduce rows ─ [N, C, 1, W]   →   x ─ pool 16 × 1 ─ [N, C, H / 16, W] ─ … ─ reduce rows ─ [N, C, 1, W]

So rows that are swept need not be there at once, and those of large images are read by all cores. Sums are averages of
so many rows, with zeros behind the last ones, times their number, which is a power of two: nothing is rounded by that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from brickrt.graph.ir import Graph, Node
from brickrt.graph.rewriter import unused_name
from brickrt.ops.base import Op
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.pool import Pool
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.types import TensorType, is_floating
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.layout import Layout

ROWS = 16  # of a block
LEVELS = 2  # of blocks, so that what is left is known every few bands of a sweep
AXIS = 2  # of rows


def split_profiles(graph: Graph, layouts: Mapping[str, Layout], device: DeviceSpec) -> tuple[Graph, dict[str, Layout]]:
    """The graph in which reductions over rows, of tensors that exceed a core's cache, read blocks of rows that are
    reduced already."""
    writer = _ProfileWriter(graph, dict(layouts), device.l2)
    for node in graph.nodes:
        writer.nodes.append(writer.finished(node) if _is_profile(graph, node, device) else node)
    return replace(graph, nodes=tuple(writer.nodes), types=writer.types), writer.layouts


def _is_profile(graph: Graph, node: Node, device: DeviceSpec) -> bool:
    op = node.op
    if not isinstance(op, Reduce) or op.combine not in ("sum", "max") or op.axes[0] != AXIS:
        return False
    x = graph.ins(node)[0]
    dtype = x.dtype if op.pre is None else op.pre.dtype
    wide = is_floating(dtype) and dtype.itemsize >= 4  # blocks are not rounded to halves
    keeps = math.prod(extent for axis, extent in enumerate(x.shape) if axis > AXIS and axis not in op.axes) > 1
    simple = op.pre is None or len(node.inputs) == 1 or len(op.axes) > 1
    return wide and keeps and simple and x.nbytes > device.l2 and x.shape[AXIS] >= 2 * ROWS


class _ProfileWriter:
    """Builds the new graph, node by node in order."""

    def __init__(self, graph: Graph, layouts: dict[str, Layout], cache: int) -> None:
        self.types, self.layouts, self.cache = dict(graph.types), layouts, cache
        self.nodes: list[Node] = []

    def finished(self, node: Node) -> Node:
        """The node, reading blocks of rows."""
        op, name, scale = node.op, node.inputs[0], 1
        assert isinstance(op, Reduce)
        if len(op.axes) > 1:
            name = self.add(node, "rows", Reduce(op.combine, op.axes[1:], True, op.pre), node.inputs)
        elif op.pre is not None:
            name = self.add(node, "elements", Map(op.pre), node.inputs)
        for _ in range(LEVELS):
            if self.types[name].nbytes <= self.cache or self.types[name].shape[AXIS] < 2 * ROWS:
                break
            name = self.add(node, "blocks", _blocks(self.types[name], op.combine == "max"), (name,))
            scale *= 1 if op.combine == "max" else ROWS
        dtype = self.types[name].dtype
        pre = apply("mul", arg(0, dtype), const(scale, dtype)) if scale > 1 else None
        axes = op.axes[:1] if op.keepdims else op.axes
        return replace(node, op=replace(op, axes=axes, pre=pre), inputs=(name,))

    def add(self, node: Node, what: str, op: Op, inputs: tuple[str, ...]) -> str:
        """Adds a node whose output lies as its first input does."""
        name = unused_name(f"{node.output}:{what}", self.types)
        self.types[name], self.layouts[name] = op.infer([self.types[i] for i in inputs]), self.layouts[inputs[0]]
        self.nodes.append(Node(f"{node.name}:{what}", op, inputs, name, node.origin))
        return name


def _blocks(x: TensorType, largest: bool) -> Pool:
    """Reduces each block of rows; the last one may have fewer."""
    others = (0,) * (x.rank - AXIS - 1)
    ones = (1,) * len(others)
    kernel, missing = (ROWS, *ones), -x.shape[AXIS] % ROWS
    sizes = kernel, kernel, (1, *ones), (0, *others), (missing, *others)
    return Pool("max", *sizes) if largest else Pool("average", *sizes, count_include_pad=True)
