"""Which boxes of every tensor of a subgraph the bricks of its output need: halos, and how much they add."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from brickrt.graph.ir import Graph
from brickrt.ops.types import Boxes, Shape

NO_BLOCKS: Mapping[str, int] = MappingProxyType({})


class Demand:
    """The boxes that n bricks need, per tensor, while nodes join a subgraph from its output backwards.

    A node may join once all its readers in the subgraph have. Constants are left out, and tensors of which a box reads
    little, anywhere. `blocks` gives the channels of a block for blocked tensors: kernels write whole blocks, so that
    boxes are rounded out to them.
    """

    def __init__(self, graph: Graph, output: str, boxes: Boxes, blocks: Mapping[str, int] = NO_BLOCKS) -> None:
        self.graph, self.blocks = graph, blocks
        self.needed: dict[str, Boxes] = {output: boxes.clip(graph.types[output].shape)}

    def join(self, k: int) -> None:
        """Adds what node `k` reads to what is needed."""
        node = self.graph.nodes[k]
        ins, out = self.graph.ins(node), self.graph.out(node)
        for i, name in enumerate(node.inputs):
            if name not in self.graph.constants and i not in node.op.anywhere:
                region = node.op.region(i, self.needed[node.output], ins, out)
                if name in self.blocks:
                    region = whole_blocks(region, self.blocks[name], ins[i].shape)
                self.needed[name] = region.union(self.needed[name]) if name in self.needed else region


def whole_blocks(boxes: Boxes, block: int, shape: Shape) -> Boxes:
    """The boxes with their channels rounded out to blocks of a tensor of `shape`; empty ones as they are."""
    before, behind = boxes.lo[:, 1] % block, np.where(boxes.hi[:, 1] == shape[1], 0, -boxes.hi[:, 1] % block)
    if not (before.any() or behind.any()):
        return boxes
    lo, hi = boxes.lo.copy(order="K"), boxes.hi.copy(order="K")
    lo[:, 1] -= before
    hi[:, 1] = np.minimum(hi[:, 1] + behind, shape[1])
    idle = boxes.empty[:, None]
    return Boxes(np.where(idle, boxes.lo, lo), np.where(idle, boxes.hi, hi))


def needed_boxes(
    graph: Graph, nodes: Iterable[int], boxes: Boxes, blocks: Mapping[str, int] = NO_BLOCKS
) -> dict[str, Boxes]:
    """Per tensor, the box of it that each of `boxes` of the subgraph's output needs, clipped to the tensor.

    `nodes` are the indices of the subgraph; the output is what the last of them writes. A tensor read by several
    nodes has the smallest box around all they read; `blocks` as in `Demand`. The output itself is included, constants
    are not.
    """
    backwards = sorted(nodes, reverse=True)
    demand = Demand(graph, graph.nodes[backwards[0]].output, boxes, blocks)
    for k in backwards:
        demand.join(k)
    return demand.needed


def totals(needed: dict[str, Boxes], times: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Elements of each tensor that all bricks touch together, each an array [1]; a box stands for so many `times`."""
    if times is None:
        return {name: boxes.volumes.sum(keepdims=True) for name, boxes in needed.items()}
    return {name: (boxes.volumes @ times).reshape(1) for name, boxes in needed.items()}


def growth(graph: Graph, nodes: Sequence[int], elements: dict[str, np.ndarray], flops: Sequence[float]) -> np.ndarray:
    """Δ of BrickDL: by how much arithmetic grows when every brick computes all that it needs, halos included.

    `elements` are those that all bricks together touch of each tensor, `flops` those of each node. 0 where bricks need
    less than whole layers.
    """
    outputs = [graph.nodes[k].output for k in nodes]
    # in float64: operations times elements exceed int64 from images of 2048² on
    shares = [elements[name] / float(max(1, graph.types[name].size)) for name in outputs]
    again = sum(float(f) * share for f, share in zip(flops, shares))
    return np.maximum(again / max(1.0, float(sum(flops))) - 1, 0)


def working_set(graph: Graph, needed: dict[str, Boxes]) -> np.ndarray:
    """Bytes that each brick touches of all tensors together, [bricks]."""
    sizes = [boxes.volumes * graph.types[name].dtype.itemsize for name, boxes in needed.items()]
    return np.sum(sizes, axis=0)


def middle_demand(graph: Graph, k: int, bricks: Sequence[Shape]) -> Demand:
    """What the brick in the middle of node `k`'s output needs, for each of these shapes of bricks; no node has joined
    yet."""
    output = graph.nodes[k].output
    return Demand(graph, output, middle_boxes(graph.types[output].shape, bricks))


def middle_boxes(shape: Shape, bricks: Sequence[Shape]) -> Boxes:
    """For each brick shape, the box of the brick in the middle of a tensor of `shape`."""
    edges, extents = np.asarray(bricks, np.int64), np.asarray(shape, np.int64)
    lo = (-(-extents // edges)) // 2 * edges
    lo = np.where(lo + edges > extents, np.maximum(lo - edges, 0), lo)
    return Boxes(lo, np.minimum(lo + edges, extents))
