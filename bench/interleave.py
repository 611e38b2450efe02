"""Timing several engines in one process, in turns of random order, so that only their ratios depend on them."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from statistics import median

from peers import Contender

PAUSE = 0.1  # seconds: other engines' threads spin on after a run


def turns(contenders: Sequence[Contender], rounds: int, seed: int = 0) -> dict[str, list[float]]:
    """Seconds per run and engine. Before each timed run a pause, and a run that does not count."""
    order, times = random.Random(seed), {c.name: [] for c in contenders}
    for _ in range(rounds):
        for c in order.sample(list(contenders), len(contenders)):
            time.sleep(PAUSE)
            c.run()
            started = time.perf_counter()
            c.run()
            times[c.name].append(time.perf_counter() - started)
    return times


def ratios(times: dict[str, list[float]], ours: str = "brickrt") -> dict[str, dict[str, float]]:
    """Per peer: its time over ours, turn by turn; above 1 we are faster."""
    out = {}
    for name, theirs in times.items():
        if name != ours:
            each = [t / o for t, o in zip(theirs, times[ours], strict=True)]
            out[name] = {"median": median(each), "min": min(each), "max": max(each)}
    return out
