"""Where tensors lie that sweeps hold whole: in the place of others where they are never needed at the same time.

    before pass 0   pass 0   before pass 1   pass 1   …   after the last
          0            1           2            3                2·passes

What a network of many passes needs whole, as norms over pixels of all its layers, may be many times what it needs at a
time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from brickrt.graph.ir import Graph
from brickrt.ops.operators.move import Take, View
from brickrt.plan.geometry.arena_packing import Lifetime, pack_arena


@dataclass(frozen=True)
class WholeTensors:
    """The bytes of each tensor, where each begins in the memory that they share, and all bytes of that."""

    sizes: Mapping[str, int]
    offsets: Mapping[str, int]
    nbytes: int


def place_whole_tensors(
    graph: Graph, sizes: Mapping[str, int], times: Mapping[int, Sequence[int]], last: int
) -> WholeTensors:
    """Places tensors of these sizes, where nodes run at these times, of which `last` is the last. A tensor is there
    from when it is made to when it was read last: inputs from the beginning, outputs to the end."""
    found: dict[str, list[int]] = {name: [] for name in sizes}
    for k, at in times.items():
        node = graph.nodes[k]
        for name in (node.output, *node.inputs):
            if (root := _root(graph, name, sizes)) is not None:
                found[root] += at
    for time, names in ((0, graph.inputs), (last, graph.outputs)):
        for name in names:
            if (root := _root(graph, name, sizes)) is not None:
                found[root].append(time)
    lives = [Lifetime(name, sizes[name], min(at), max(at), ()) for name, at in found.items() if at]
    offsets, nbytes, _ = pack_arena(lives, slack=0)
    return WholeTensors(sizes, {name: offsets.get(name, 0) for name in sizes}, nbytes)


def _root(graph: Graph, name: str, sizes: Mapping[str, int]) -> str | None:
    """The tensor of these that another one may lie in; None where there is none."""
    while name not in sizes:
        node = graph.nodes[graph.producers[name]] if name in graph.producers else None
        if node is None or not isinstance(node.op, Take | View):
            return None
        name = node.inputs[0]
    return name
