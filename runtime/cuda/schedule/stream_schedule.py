"""Chooses the stream of each launch, and the events that order the streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Turn:
    """A launch on `stream`, after the events of launches `waits`; `recorded` if another stream waits for its own."""

    stream: int
    waits: tuple[int, ...]
    recorded: bool


@dataclass(frozen=True)
class Schedule:
    """A turn per launch; the launches `tails`, the last of each stream but the first, end the whole."""

    turns: tuple[Turn, ...]
    tails: tuple[int, ...]

    @property
    def streams(self) -> int:
        """How many streams are used."""
        return 1 + max((turn.stream for turn in self.turns), default=0)


def schedule(after: Sequence[Sequence[int]], streams: int) -> Schedule:
    """Launches on at most `streams` streams, in their order; `after` names what each waits for.

    A launch follows what it waits for on the same stream if nothing else does yet; branches take streams of their own.
    An event is waited for only where the order of the streams does not say as much.
    """
    tails: list[int] = []  # last launch of each stream
    known: list[list[int]] = []  # per launch, the last launch of each stream that is complete when it is
    taken: list[tuple[int, tuple[int, ...]]] = []
    for k, needs in enumerate(after):
        stream = _choose(tails, needs, streams)
        if stream == len(tails):
            tails.append(-1)
        clock = _at(known, tails[stream], streams)
        waits = []
        for d in sorted(needs, reverse=True):
            if clock[taken[d][0]] < d:
                waits.append(d)
                clock = [max(pair) for pair in zip(clock, known[d], strict=True)]
        clock[stream] = k
        known.append(clock)
        taken.append((stream, tuple(waits)))
        tails[stream] = k
    others = tuple(tails[1:])
    awaited = {d for _, waits in taken for d in waits} | set(others)
    return Schedule(tuple(Turn(s, waits, k in awaited) for k, (s, waits) in enumerate(taken)), others)


def _at(known: list[list[int]], launch: int, streams: int) -> list[int]:
    return list(known[launch]) if launch >= 0 else [-1] * streams


def _choose(tails: Sequence[int], needs: Sequence[int], streams: int) -> int:
    """The stream on which the latest of `needs` is the last; else a new one; else the one that rests longest."""
    following = [s for s, tail in enumerate(tails) if tail in needs]
    if following:
        return max(following, key=lambda s: tails[s])
    if len(tails) < streams:
        return len(tails)
    return min(range(streams), key=lambda s: tails[s])
