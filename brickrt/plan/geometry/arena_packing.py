"""Offsets of tensors in one arena, whose ranges are shared by tensors that never live at the same time."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from operator import itemgetter

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


_Packed = tuple[int, int, Lifetime]  # a tensor and the range that it has
_BY_RANGE = itemgetter(0, 1)


def pack_arena(lives: list[Lifetime], slack: int = SLACK) -> tuple[dict[str, int], int, list[Reuse]]:
    """Offsets of all tensors, the arena's size, and who reuses whose memory. Largest first, lowest free offset."""
    packed = _packed(lives, slack)
    return {life.tensor: start for start, _, life in packed}, _size(packed), _reuses(packed)


def arena_size(lives: list[Lifetime], slack: int = SLACK) -> int:
    """The size of the arena that `pack_arena` packs."""
    return _size(_packed(lives, slack))


def _size(packed: list[_Packed]) -> int:
    return max((end for _, end, _ in packed), default=0)


def _packed(lives: list[Lifetime], slack: int) -> list[_Packed]:
    """The tensors with their ranges, in the order in which they found them."""
    packed: list[_Packed] = []
    ascending: list[_Packed] = []  # the same by where they lie
    for life in sorted(lives, key=lambda one: (-one.nbytes, one.born)):
        check_time("finding memory for", life.tensor)
        size, at = aligned(life.nbytes), 0
        born, dies = life.born - slack, life.dies + slack
        for start, end, other in ascending:
            if start >= at + size:
                break
            if at < end and born <= other.dies and other.born <= dies:
                at = end
        packed.append((at, at + size, life))
        insort(ascending, packed[-1], key=_BY_RANGE)
    return packed


def _reuses(packed: list[_Packed]) -> list[Reuse]:
    found = []
    for start, end, life in packed:
        users: set[int] = set()
        for other_start, other_end, other in packed:
            if other.dies < life.born and other_start < end and start < other_end:
                users.update(other.users)
        if users:
            found.append(Reuse(life.tensor, tuple(sorted(users))))
    return found
