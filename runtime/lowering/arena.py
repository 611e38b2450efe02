"""Where tensors lie: inputs and outputs with the caller, padded intermediates in scratch, the rest in one arena.

Arena ranges are shared by tensors that never live at the same time. Lifetimes are counted in subgraphs, since those run
in sequence; workers may be ahead of one another, so whoever writes a range again waits for all who read it before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from brickrt.ops.operators.move import View
from brickrt.ops.types import TensorType
from brickrt.plan.plan import Plan
from brickrt.runtime.lowering.task_graph import Allocation, StorageKind


def allocate(kind: TensorType, extents: Iterable[int], layout: str, lanes: int, where: StorageKind) -> Allocation:
    """Storage of the given extents for a tensor or the largest box of one; the offset is set later."""
    extents = tuple(int(e) for e in extents)
    block = lanes if layout == "blocked" else 1
    stored = list(extents)
    if block > 1:
        stored[1] = -(-stored[1] // block) * block
    return Allocation(where, extents, math.prod(stored) * kind.dtype.itemsize)


def view_aliases(plan: Plan) -> dict[str, str]:
    """Views that need no copy: all but those that are themselves outputs of the graph."""
    graph = plan.graph
    return {
        node.output: node.inputs[0]
        for node in graph.nodes
        if isinstance(node.op, View) and node.output not in graph.outputs and node.inputs[0] not in graph.constants
    }


def with_offsets(allocations: Mapping[str, Allocation], offsets: Mapping[str, int]) -> dict[str, Allocation]:
    """The allocations, those that `offsets` names at their offsets."""
    return {name: replace(one, offset=offsets.get(name, one.offset)) for name, one in allocations.items()}
