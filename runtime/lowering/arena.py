"""Where tensors lie: inputs and outputs with the caller, padded intermediates in scratch, the rest in one arena.

Arena ranges are shared by tensors that never live at the same time. Lifetimes are counted in subgraphs, since those run
in sequence; workers may be ahead of one another, so whoever writes a range again waits for all who read it before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from brickrt.ops.operators.move import View
from brickrt.ops.types import TensorType
from brickrt.plan.plan import Plan
from brickrt.runtime.lowering.task_graph import Allocation, Kind

ALIGNMENT = 64
SLACK = 1  # subgraphs that a range rests before it is written again, so that nobody has to wait for its readers


@dataclass(frozen=True)
class Lifetime:
    """First and last subgraph that touch a tensor, and the subgraphs that do."""

    tensor: str
    nbytes: int
    born: int
    dies: int
    users: tuple[int, ...]


@dataclass(frozen=True)
class Reuse:
    """`tensor` takes memory that `users`, earlier subgraphs, had in use."""

    tensor: str
    users: tuple[int, ...]


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def whole_place(kind: TensorType, layout: str, lanes: int) -> Allocation:
    """An arena place for a whole tensor; the offset is set later."""
    return part_place(kind, kind.shape, layout, lanes, "arena")


def part_place(kind: TensorType, extents: Iterable[int], layout: str, lanes: int, where: Kind) -> Allocation:
    extents = tuple(int(e) for e in extents)
    block = lanes if layout == "blocked" else 1
    stored = list(extents)
    if block > 1:
        stored[1] = -(-stored[1] // block) * block
    size = 1
    for e in stored:
        size *= e
    return Allocation(where, extents, size * kind.dtype.itemsize)


def view_aliases(plan: Plan) -> dict[str, str]:
    """Views that need no copy: all but those that are themselves outputs of the graph."""
    graph = plan.graph
    return {
        node.output: node.inputs[0]
        for node in graph.nodes
        if isinstance(node.op, View) and node.output not in graph.outputs and node.inputs[0] not in graph.constants
    }


def lifetimes(plan: Plan, places: Mapping[str, Allocation], aliases: Mapping[str, str]) -> list[Lifetime]:
    """Lives of all arena tensors, in order of birth."""
    graph = plan.graph
    users: dict[str, list[int]] = {}
    for s, subgraph in enumerate(plan.subgraphs):
        for k in subgraph.members:
            for name in (*graph.nodes[k].inputs, graph.nodes[k].output):
                while name in aliases:
                    name = aliases[name]
                if name in places and places[name].kind == "arena":
                    users.setdefault(name, []).append(s)
    return [Lifetime(n, places[n].nbytes, s[0], s[-1], tuple(dict.fromkeys(s))) for n, s in users.items()]


def pack_arena(lives: list[Lifetime], slack: int = SLACK) -> tuple[dict[str, int], int, list[Reuse]]:
    """Offsets of all tensors, the arena's size, and who reuses whose memory. Largest first, lowest free offset."""
    offsets: dict[str, int] = {}
    placed: list[tuple[int, int, Lifetime]] = []
    for life in sorted(lives, key=lambda one: (-one.nbytes, one.born)):
        size = aligned(life.nbytes)
        at = 0
        for start, end, other in sorted(placed, key=lambda p: p[:2]):
            together = life.born <= other.dies + slack and other.born <= life.dies + slack
            if together and start < at + size and at < end:
                at = end
        offsets[life.tensor] = at
        placed.append((at, at + size, life))
    total = max((end for _, end, _ in placed), default=0)
    return offsets, total, _reuses(placed)


def _reuses(placed: list[tuple[int, int, Lifetime]]) -> list[Reuse]:
    found = []
    for start, end, life in placed:
        users: set[int] = set()
        for other_start, other_end, other in placed:
            if other.dies < life.born and other_start < end and start < other_end:
                users.update(other.users)
        if users:
            found.append(Reuse(life.tensor, tuple(sorted(users))))
    return found


def with_offsets(places: Mapping[str, Allocation], offsets: Mapping[str, int]) -> dict[str, Allocation]:
    return {name: replace(place, offset=offsets.get(name, place.offset)) for name, place in places.items()}
