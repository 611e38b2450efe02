"""Chains of reshapes and transposes that keep rows together, run as one unit: SpaceToDepth, a norm between transposes.

Between them the rows lie along another axis, so none of them is swept by itself. Together they are: a row of the last
output needs few rows of the first input.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from brickrt.graph.ir import Graph
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import Transpose, View
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.ops.types import Boxes
from brickrt.plan.geometry.halo import needed_boxes
from brickrt.plan.subgraph import Subgraph

ROWS = 8  # of a brick of a chain


def reshape_chain(graph: Graph, k: int, axis: int, alone: Collection[int]) -> tuple[int, ...]:
    """The longest chain from node `k` on of which a row of the output needs few rows of the input; empty where none
    does. It has nodes that run `alone`, and the first and the last move elements."""
    nodes = [k]
    while (following := _next(graph, nodes[-1])) is not None and following in alone:
        nodes.append(following)
    while nodes and not _keeps_rows(graph, nodes, axis):
        nodes.pop()
    return tuple(nodes)


def _next(graph: Graph, k: int) -> int | None:
    """The one reader of what node `k` writes, where it may be in a chain: it reads nothing else but constants."""
    name = graph.nodes[k].output
    readers = graph.consumers.get(name, ())
    if len(readers) != 1 or name in graph.outputs:
        return None
    node = graph.nodes[readers[0]]
    others = [other for other in node.inputs if other != name and other not in graph.constants]
    return readers[0] if isinstance(node.op, View | Transpose | Rowwise | Map) and not others else None


def _keeps_rows(graph: Graph, nodes: Sequence[int], axis: int) -> bool:
    if not isinstance(graph.nodes[nodes[-1]].op, View | Transpose):
        return False
    source, target = graph.ins(graph.nodes[nodes[0]])[0], graph.out(graph.nodes[nodes[-1]])
    if min(source.rank, target.rank) <= axis or min(source.shape[axis], target.shape[axis]) < 2:
        return False
    row = Boxes.whole(target.shape)
    row.lo[:, axis], row.hi[:, axis] = target.shape[axis] // 2, target.shape[axis] // 2 + 1
    read = needed_boxes(graph, nodes, row)[graph.nodes[nodes[0]].inputs[0]]
    return int(read.extents[0, axis]) <= -(-source.shape[axis] // target.shape[axis])


def with_chains(
    graph: Graph, units: Sequence[Subgraph], chains: Sequence[tuple[int, ...]], axis: int
) -> list[Subgraph]:
    """The units, those of each chain as one in the place of its last."""
    inside = {k for chain in chains for k in chain}
    ends = {chain[-1]: chain for chain in chains}
    found = []
    for unit in units:
        k = unit.nodes[-1]
        if k in ends:
            found.append(_as_unit(graph, unit, ends[k], axis))
        elif k not in inside:
            found.append(unit)
    return found


def _as_unit(graph: Graph, last: Subgraph, chain: tuple[int, ...], axis: int) -> Subgraph:
    shape = graph.out(graph.nodes[chain[-1]]).shape
    brick = tuple(min(ROWS, extent) if k == axis else max(1, extent) for k, extent in enumerate(shape))
    bricks = tuple(graph.out(graph.nodes[k]).shape for k in chain)
    return Subgraph(
        chain, "padded", brick, brick, bricks, 0.0, 1.0, 1, 1, 0, 0, "moves rows together", last.modelled_us
    )
