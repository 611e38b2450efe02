"""Splits reductions over whole images: partial results of segments of rows, and a small reduction of these, or two.

conv ─┬─ reduce ─          conv ─┬─ partial reduce ─ (reduce rows) ─ reduce ─
      └─ …             →         └─ …

The partial reductions run in the tasks of the convolution's subgraph, brick by brick, while the brick is in cache.
Other reductions over images are first of each row, and then of these.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from brickrt.graph.ir import Graph, Node
from brickrt.ops.operators.move import Take, View
from brickrt.ops.operators.partial_reduce import PartialReduce, Segmented
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.types import TensorType
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.layout import Layout
from brickrt.plan.subgraph import Subgraph

LENGTH = 64  # pixels of a segment of a blocked tensor: rows of bricks are cut at multiples of it
GPU_LENGTH = 16  # the same on a GPU, whose bricks are narrow


def split_reductions(
    graph: Graph, layouts: Mapping[str, Layout], device: DeviceSpec
) -> tuple[Graph, dict[str, Layout]]:
    """The graph in which reductions over all of space, of tensors that exceed a core's cache, read partial results."""
    nodes: list[Node] = []
    types, found = dict(graph.types), dict(layouts)
    for node in graph.nodes:
        if _splits(graph, layouts, device, node):
            assert isinstance(node.op, Reduce)
            op, name = PartialReduce(node.op.combine, LENGTH), f"{node.output}:segments"
            types[name], found[name] = op.infer(graph.ins(node)), "blocked"
            nodes.append(Node(f"{node.name}:segments", op, node.inputs, name, node.origin))
            if types[name].nbytes > device.l2 and types[name].rank > 3:  # a signal is one row
                nodes.append(_row_totals(types[name].rank, node, name))
                rows, found[nodes[-1].output] = nodes[-1].op.infer([types[name]]), "blocked"
                name = nodes[-1].output
                types[name] = rows
            node = replace(node, inputs=(name,))
        elif _splits_by_row(graph, device, node):
            first, node = _row_by_row(graph, node)
            types[first.output], found[first.output] = first.op.infer(graph.ins(first)), layouts[first.inputs[0]]
            nodes.append(first)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), types=types), found


def split_gpu_reductions(
    graph: Graph, layouts: Mapping[str, Layout], device: DeviceSpec
) -> tuple[Graph, dict[str, Layout]]:
    """The graph in which reductions along the rows of images that exceed a GPU's cache read partial results, which
    fused bricks compute."""
    nodes: list[Node] = []
    types, found = dict(graph.types), dict(layouts)
    for node in graph.nodes:
        if _splits_on_gpu(graph, layouts, device, node):
            assert isinstance(node.op, Reduce)
            op, name = PartialReduce(node.op.combine, GPU_LENGTH), f"{node.output}:segments"
            types[name], found[name] = op.infer(graph.ins(node)), layouts[node.inputs[0]]
            nodes.append(Node(f"{node.name}:segments", op, node.inputs, name, node.origin))
            node = replace(node, inputs=(name,))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), types=types), found


def _splits_on_gpu(graph: Graph, layouts: Mapping[str, Layout], device: DeviceSpec, node: Node) -> bool:
    op, x = node.op, graph.ins(node)[0] if node.inputs else None
    if not isinstance(op, Reduce) or op.pre is not None or x is None or node.inputs[0] not in graph.producers:
        return False
    wide = x.dtype.itemsize >= 4 and x.shape[-1] >= 2 * GPU_LENGTH  # partial results are not rounded to halves
    over_rows = x.rank > 2 and x.rank - 1 in op.axes and min(op.axes) >= 2
    return wide and over_rows and layouts[node.inputs[0]] == "last" and x.nbytes > device.shared[1]


def _row_totals(rank: int, node: Node, segments: str) -> Node:
    """Combines the segments of each row: of an image of any width a number per row and channel is left."""
    assert isinstance(node.op, Reduce)
    op = Reduce(node.op.combine, tuple(range(3, rank)), keepdims=True)
    return Node(f"{node.name}:rows", op, (segments,), f"{node.output}:rows", node.origin)


def _row_by_row(graph: Graph, node: Node) -> tuple[Node, Node]:
    """The reduction of each row of space to a number, and that of these to what `node` gives."""
    op = node.op
    assert isinstance(op, Reduce)
    name = f"{node.output}:rows"
    first = Reduce(op.combine, op.axes[1:], True, op.pre)
    last = replace(op, axes=op.axes[:1] if op.keepdims else op.axes, pre=None)
    rows = Node(f"{node.name}:rows", first, node.inputs, name, node.origin)
    return rows, replace(node, op=last, inputs=(name,))


def _splits_by_row(graph: Graph, device: DeviceSpec, node: Node) -> bool:
    """Reductions whose elements are computed from several tensors, as variances are, or of the network's inputs."""
    op, ins = node.op, graph.ins(node)
    if not isinstance(op, Reduce) or ins[0].nbytes <= device.l2:
        return False
    wide = (ins[0].dtype if op.pre is None else op.pre.dtype).itemsize >= 4  # rows are not rounded to halves
    return wide and math.prod(ins[0].shape[3:]) > 1 and op.axes == tuple(range(2, ins[0].rank))


def _splits(graph: Graph, layouts: Mapping[str, Layout], device: DeviceSpec, node: Node) -> bool:
    op, x = node.op, graph.ins(node)[0] if node.inputs else None
    if not isinstance(op, Reduce) or op.pre is not None or x is None or node.inputs[0] not in graph.producers:
        return False
    over_space = op.axes == tuple(range(2, x.rank)) and x.rank > 2
    blocked = layouts[node.inputs[0]] == layouts[node.output] == "blocked"
    return over_space and blocked and x.nbytes > device.l2 and not _short(x)


def _short(x: TensorType) -> bool:
    """Whether rows are so short that partial results would hardly be fewer than elements."""
    return x.shape[-1] < LENGTH // 4


def attach_partial_reductions(graph: Graph, subgraphs: Sequence[Subgraph], kind: str = "cpu") -> list[Subgraph]:
    """The subgraphs, with partial reductions that can run brick by brick moved into those that make what they read, on
    a device of this kind."""
    hosts = ("layerwise", "padded") if kind == "cpu" else ("fused",)
    makers = {graph.nodes[s.nodes[-1]].output: number for number, s in enumerate(subgraphs)}
    attached: dict[int, list[int]] = {}
    moved = set()
    for number, s in enumerate(subgraphs):
        node = graph.nodes[s.nodes[-1]]
        if not isinstance(node.op, Segmented):
            continue
        maker = makers.get(node.inputs[0])
        if maker is not None and _may_host(graph, subgraphs[maker], node.op, hosts):
            attached.setdefault(maker, []).append(s.nodes[-1])
            moved.add(number)
    return [
        replace(s, partial_reductions=tuple(attached.get(number, ())))
        for number, s in enumerate(subgraphs)
        if number not in moved
    ]


def _may_host(graph: Graph, s: Subgraph, op: Segmented, hosts: Container[str]) -> bool:
    """Whether every brick, and band of one, has whole segments, in a subgraph of one of these strategies."""
    root = graph.nodes[s.nodes[-1]]
    computes = not isinstance(root.op, View | Take) and s.strategy in hosts
    shape = graph.out(root).shape
    return (
        computes
        and math.prod(shape) > 0
        and all(edges[-1] >= shape[-1] or edges[-1] % op.length == 0 for edges in (s.brick, s.band))
    )
