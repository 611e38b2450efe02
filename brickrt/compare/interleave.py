"""Timing several engines in one process, in turns of random order, so that only their ratios depend on them."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from brickrt.compare.contenders import Contender

PAUSE = 0.1  # seconds: other engines' threads spin on after a run


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of several values."""

    median: float
    min: float
    max: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        return Spread(median(values), min(values), max(values))

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def turns(
    contenders: Sequence[Contender],
    rounds: int,
    pause: float = PAUSE,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, list[float]]:
    """Milliseconds per turn and engine. Before each timed run a pause, and a run that does not count.

    `progress(what, done, total)` is told of every round, between runs.
    """
    order = random.Random(seed)
    times: dict[str, list[float]] = {c.name: [] for c in contenders}
    for number in range(rounds):
        if progress:
            progress("round", number, rounds)
        for c in order.sample(list(contenders), len(contenders)):
            time.sleep(pause)
            c.run()
            started = time.perf_counter()
            c.run()
            times[c.name].append((time.perf_counter() - started) * 1e3)
    return times


def ratios(times: Mapping[str, Sequence[float]], ours: str) -> dict[str, Spread]:
    """Per peer: its time over ours, turn by turn; above 1 we are faster."""
    mine = times[ours]
    return {
        name: Spread.of([t / o for t, o in zip(theirs, mine, strict=True)])
        for name, theirs in times.items()
        if name != ours
    }


def geometric_mean(values: Iterable[float]) -> float | None:
    """None of no values."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else None
