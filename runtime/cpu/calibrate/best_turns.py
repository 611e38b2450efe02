"""The best of many short turns: what work is able to do, whatever else the machine does meanwhile.

A turn is shorter than the time that a scheduler gives to a thread, so some turns are never interrupted. Whatever
disturbs a turn makes it slower, never faster: the best turn is the least disturbed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

SETTLED_S = 0.06  # in which no rate may have risen
SETTLED_TURNS = 40  # the same in turns, for a machine that leaves few of them
MOST_S = 0.6
GAIN = 1.01  # a smaller rise is none

Turn = Callable[[], float]  # works, and gives its rate


def best_rates(
    turns: Mapping[str, Turn],
    doubtful: Callable[[dict[str, float]], bool],
    now: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The best rate of each kind of turn.

    All kinds take turns with each other, so that they meet the same clock. It ends when no rate has risen for a while
    and none is `doubtful`, or after MOST_S.
    """
    best = dict.fromkeys(turns, 0.0)
    started = rose = now()
    since = 0
    while now() - started < MOST_S:
        since += 1
        for name, turn in turns.items():
            rate = turn()
            if rate > GAIN * best[name]:
                rose, since = now(), 0
            best[name] = max(rate, best[name])
        if since >= SETTLED_TURNS and now() - rose >= SETTLED_S and not doubtful(best):
            break
    return best
