"""How many rows of an image an output row depends on."""

from __future__ import annotations

from collections.abc import Mapping

from brickrt.graph.ir import Graph
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.pool import Pool


def row_reach(graph: Graph, axes: Mapping[str, int], usual: int, tall: int) -> int:
    """Rows of `tall` between an output row and the first that it depends on, about: what windows along the `usual` axis
    add up to on the longest way. `axes` has the row axis of each tensor that has rows."""
    found: dict[str, float] = {}
    for node in graph.nodes:
        if node.output not in axes:
            continue
        own = 0.0
        if isinstance(node.op, Conv | Pool) and axes[node.output] == usual:
            share = tall / max(1, graph.ins(node)[0].shape[usual])
            own = (node.op.kernel[usual - 2] - 1) * node.op.dilations[usual - 2] / 2 * share
        found[node.output] = max((found.get(name, 0.0) for name in node.inputs), default=0.0) + own
    return int(max(found.values(), default=0.0))
