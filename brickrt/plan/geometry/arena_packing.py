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
    """Who has to be waited for before a tensor is written: the users of those that had its range last. What these had
    taken over themselves is done with by then, since a tensor's writers are among its users."""
    found, last = dict[str, tuple[int, ...]](), list[_Packed]()  # ranges that never overlap, with who had them last
    for start, end, life in sorted(packed, key=lambda one: one[2].born):
        taken = [part for part in last if part[0] < end and start < part[1]]
        if taken:
            found[life.tensor] = tuple(sorted({user for _, _, other in taken for user in other.users}))
        kept = [part for part in last if not (part[0] < end and start < part[1])]
        ends = [(a, start, other) for a, _, other in taken if a < start] + [
            (end, b, other) for _, b, other in taken if b > end
        ]
        last = [*kept, *ends, (start, end, life)]
    return [Reuse(life.tensor, found[life.tensor]) for _, _, life in packed if life.tensor in found]
