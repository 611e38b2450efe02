"""Offsets of tensors in one arena, whose ranges are shared by tensors that never live at the same time."""

from __future__ import annotations

from dataclasses import dataclass

from brickrt.graph.time_budget import check_time

ALIGNMENT = 64
SLACK = 1  # subgraphs that a range rests before it is written again, so that nobody has to wait for its readers


@dataclass(frozen=True)
class Lifetime:
    """First and last subgraph that use a tensor, and the subgraphs that do."""

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
    """Bytes rounded up to the alignment of tensors."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


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
