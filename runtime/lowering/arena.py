"""Where tensors lie: inputs and outputs with the caller, padded intermediates in scratch, the rest in one arena.

Arena ranges are shared by tensors that never live at the same time. Lifetimes are counted in subgraphs, since those run
in sequence; workers may be ahead of one another, so whoever writes a range again waits for all who read it before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from brickrt.graph.time_budget import check_time
from brickrt.ops.operators.move import View
from brickrt.ops.types import TensorType
from brickrt.plan.plan import Plan
from brickrt.runtime.lowering.lifetimes import Lifetime
from brickrt.runtime.lowering.task_graph import Allocation, StorageKind

ALIGNMENT = 64
SLACK = 1  # subgraphs that a range rests before it is written again, so that nobody has to wait for its readers


@dataclass(frozen=True)
class Reuse:
    """`tensor` takes memory that `users`, earlier subgraphs, had in use."""

    tensor: str
    users: tuple[int, ...]


def aligned(nbytes: int) -> int:
    """Bytes rounded up to the alignment of tensors."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


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


def pack_arena(lives: list[Lifetime], slack: int = SLACK) -> tuple[dict[str, int], int, list[Reuse]]:
    """Offsets of all tensors, the arena's size, and who reuses whose memory. Largest first, lowest free offset."""
    offsets: dict[str, int] = {}
    packed: list[tuple[int, int, Lifetime]] = []
    for life in sorted(lives, key=lambda one: (-one.nbytes, one.born)):
        check_time("finding memory for", life.tensor)
        size = aligned(life.nbytes)
        at = 0
        for start, end, other in sorted(packed, key=lambda p: p[:2]):
            together = life.born <= other.dies + slack and other.born <= life.dies + slack
            if together and start < at + size and at < end:
                at = end
        offsets[life.tensor] = at
        packed.append((at, at + size, life))
    total = max((end for _, end, _ in packed), default=0)
    return offsets, total, _reuses(packed)


def _reuses(packed: list[tuple[int, int, Lifetime]]) -> list[Reuse]:
    found = []
    for start, end, life in packed:
        users: set[int] = set()
        for other_start, other_end, other in packed:
            if other.dies < life.born and other_start < end and start < other_end:
                users.update(other.users)
        if users:
            found.append(Reuse(life.tensor, tuple(sorted(users))))
    return found


def with_offsets(allocations: Mapping[str, Allocation], offsets: Mapping[str, int]) -> dict[str, Allocation]:
    """The allocations, those that `offsets` names at their offsets."""
    return {name: replace(one, offset=offsets.get(name, one.offset)) for name, one in allocations.items()}
