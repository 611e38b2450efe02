"""Attention over all positions of an image as one unit, from its scores to its result.

    queries [HW, C] ─ product ─ scores [HW, HW] ─ softmax ─ product ─ result [HW, C]
      keys [C, HW] ────┘                   values [HW, C] ──┘

Keys and values end a pass and are there whole. A task computes the scores of a few queries and what becomes of them in
its own scratch, so that scores are never stored, however large the image is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from brickrt.graph.ir import Graph, Node
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Boxes, Shape
from brickrt.plan.geometry.halo import needed_boxes
from brickrt.plan.stream.row_axes import RowAxes
from brickrt.plan.subgraph import Subgraph

SCORES_GROWTH = 4  # over the elements of their factors, at least
SCORE_BYTES = 2**24  # of a task's scores, and of each tensor like them, but at least the first number of queries
QUERIES = (8, 32, 128)  # and at most the second, of many channels the third: each task reads all keys and values
CHANNELS = 4  # to a query, of tasks with so many


@dataclass(frozen=True)
class Attention:
    """`nodes` ascend from the product that makes the scores to the one that makes the result, which alone is read by
    others; each query is compared with so many `positions`."""

    nodes: tuple[int, ...]
    positions: int

    def flops(self, graph: Graph) -> int:
        """Its arithmetic, which grows with the square of the positions."""
        return int(graph.flops([graph.nodes[k] for k in self.nodes]))


def find_attentions(graph: Graph, axes: RowAxes) -> tuple[Attention, ...]:
    """All attentions over what is swept."""
    found: list[Attention] = []
    for k, node in enumerate(graph.nodes):
        keys = _keys(graph, node, axes)
        if keys and (nodes := _until_result(graph, k)) and all(graph.nodes[one].output in axes.axes for one in nodes):
            found.append(Attention(nodes, graph.types[keys].shape[axes.of(keys)]))
    return tuple(found)


def _keys(graph: Graph, node: Node, axes: RowAxes) -> str:
    """What a node multiplies rows with all rows of, to far more than both are; empty where it does not."""
    factors = node.inputs[:2]
    if not isinstance(node.op, MatMul) or not {node.output, *factors} <= axes.axes.keys():
        return ""
    large = graph.out(node).size > SCORES_GROWTH * sum(graph.types[name].size for name in factors)
    whole = [name for i, name in enumerate(factors) if axes.needs_all(graph, node, i)]
    return whole[0] if large and len(whole) == 1 else ""


def _until_result(graph: Graph, first: int) -> tuple[int, ...]:
    """The nodes from the scores to the first tensor that is no larger than they were made of, of which nothing else is
    read outside; empty where there is none."""
    small = graph.out(graph.nodes[first]).size // SCORES_GROWTH
    made, nodes = {graph.nodes[first].output}, [first]
    left = set(graph.consumers.get(graph.nodes[first].output, ()))  # readers that are not among them yet
    while left and not made & set(graph.outputs):
        k = min(left)
        left |= set(graph.consumers.get(graph.nodes[k].output, ()))
        left.remove(k)
        made.add(graph.nodes[k].output)
        nodes.append(k)
        inner = (reader for name in made - {graph.nodes[k].output} for reader in graph.consumers.get(name, ()))
        if graph.out(graph.nodes[k]).size <= small and set(inner) <= set(nodes):
            return tuple(nodes)
    return ()


def with_attentions(graph: Graph, units: Sequence[Subgraph], attentions: Sequence[Attention]) -> list[Subgraph]:
    """The units, those of each attention as one in the place of its last. They are units of single nodes."""
    ends: Mapping[int, Attention] = {one.nodes[-1]: one for one in attentions}
    inside = {k for one in attentions for k in one.nodes}
    found = []
    for unit in units:
        k = unit.nodes[-1]
        if k in ends:
            found.append(_as_unit(graph, unit, ends[k].nodes))
        elif k not in inside:
            found.append(unit)
    return found


def _as_unit(graph: Graph, last: Subgraph, nodes: tuple[int, ...]) -> Subgraph:
    brick = _brick(graph, nodes)
    read = needed_boxes(graph, nodes, Boxes.whole(brick))
    bricks = tuple(tuple(read[graph.nodes[k].output].extents[0].tolist()) for k in nodes)
    why = "scores of a few queries at a time"
    return replace(last, nodes=nodes, strategy="padded", brick=brick, band=brick, node_bricks=bricks, why=why)


def _brick(graph: Graph, nodes: Sequence[int]) -> Shape:
    """One head and a few queries: cut along all axes that scores are cut along as well, of which the longest is that of
    the queries."""
    scores, result = (graph.nodes[k].output for k in (nodes[0], nodes[-1]))
    shape = graph.types[result].shape
    brick, queries = list(shape), 0
    for axis in sorted(range(len(shape)), key=lambda axis: shape[axis]):
        cut = (*brick[:axis], 1, *brick[axis + 1 :])
        if _elements(graph, nodes, scores, cut) * brick[axis] == _elements(graph, nodes, scores, brick):
            brick[axis], queries = 1, axis
    row = _elements(graph, nodes, scores, brick) * graph.types[scores].dtype.itemsize
    least, usual, most = QUERIES
    depth = graph.ins(graph.nodes[nodes[0]])[0].shape[-1]
    wanted = min(max(depth // CHANNELS, usual), most)
    brick[queries] = min(max(SCORE_BYTES // row, least), wanted, shape[queries])
    return tuple(brick)


def _elements(graph: Graph, nodes: Sequence[int], name: str, brick: Sequence[int]) -> int:
    """Elements of an inner tensor that the first brick needs."""
    return int(needed_boxes(graph, nodes, Boxes.whole(tuple(brick)))[name].volumes[0])
