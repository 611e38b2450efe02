"""Timing several engines in one process, in turns of random order: what slows the machine then slows all of them."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from brickrt.compare.peers import ComparedEngine

PAUSE = 0.1  # seconds: threads of the engine that ran before may still spin


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of several values."""

    median: float
    min: float
    max: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """The spread of one or more values."""
        return Spread(median(values), min(values), max(values))

    def to_dict(self) -> dict[str, float]:
        """For JSON."""
        return asdict(self)


def turns(
    engines: Sequence[ComparedEngine],
    rounds: int,
    pause: float = PAUSE,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, list[float]]:
    """Milliseconds of each engine, by round. Before each timed run come a pause and a run that is not timed.

    `progress(what, done, total)` is called before every round.
    """
    order = random.Random(seed)
    times: dict[str, list[float]] = {engine.name: [] for engine in engines}
    for number in range(rounds):
        if progress:
            progress("round", number, rounds)
        for engine in order.sample(list(engines), len(engines)):
            time.sleep(pause)
            engine.run()
            started = time.perf_counter()
            engine.run()
            times[engine.name].append((time.perf_counter() - started) * 1e3)
    return times


def ratios(times: Mapping[str, Sequence[float]], ours: str) -> dict[str, Spread]:
    """Each engine's time over that of the one called `ours`, round by round; above 1 `ours` is faster."""
    mine = times[ours]
    return {
        name: Spread.of([t / o for t, o in zip(theirs, mine, strict=True)])
        for name, theirs in times.items()
        if name != ours
    }


def geometric_mean(values: Iterable[float]) -> float | None:
    """The geometric mean of positive values; None where there are none."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else None
