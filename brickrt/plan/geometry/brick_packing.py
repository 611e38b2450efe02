"""Where the intermediates of one brick lie in memory of its own, of which tensors that never live together share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from brickrt.graph.ir import Graph
from brickrt.ops.operators.move import Take
from brickrt.plan.geometry.arena_packing import Lifetime, pack_arena


def pack_brick(graph: Graph, nodes: Sequence[int], sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Offsets of the tensors that `sizes`, in bytes, names, and the bytes of all; `nodes` run one after the other.

    A tensor lives from the node that makes it to the last that reads it, or a slice of it: slices may be read in place.
    """
    last: dict[str, int] = {}
    turns = {k: turn for turn, k in enumerate(sorted(nodes))}
    for k in sorted(nodes, reverse=True):
        node = graph.nodes[k]
        used = max(turns[k], last.get(node.output, 0)) if isinstance(node.op, Take) else turns[k]
        for name in node.inputs:
            last[name] = max(used, last.get(name, 0))
    lives = []
    for k, turn in turns.items():
        name = graph.nodes[k].output
        if name in sizes:
            lives.append(Lifetime(name, sizes[name], turn, last[name], ()))
    offsets, total, _ = pack_arena(lives, slack=0)
    return offsets, total
