"""How many worker threads to run."""

from __future__ import annotations

import os

from brickrt.graph.errors import BrickError

MOST = 256


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_count(threads: int | None) -> int:
    """The number asked for, or one per usable core. Raises BrickError for an impossible number."""
    if threads is None:
        return min(usable_cores(), MOST)
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MOST:
        raise BrickError(f"threads {threads!r} is impossible: give a whole number from 1 to {MOST}")
    return threads
