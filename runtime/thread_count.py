"""How many worker threads to run."""

from __future__ import annotations

import os

from brickrt.graph.errors import BrickError
from brickrt.plan.device.cgroup import cpu_limit

MOST_THREADS = 256
OPENMP = "OMP_NUM_THREADS"
"""Variable of the environment that programs with threads go by; of a list, `4,2`, the first number is meant."""


def usable_cores() -> int:
    """Cores that this process may run on: those that it is bound to, or fewer by the quota of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, cpu_limit() or cores))


def thread_count(threads: int | None) -> int:
    """The number asked for; or one per usable core, or fewer where the environment says fewer. Raises BrickError for an
    impossible number."""
    if threads is None:
        return min(usable_cores(), _of_environment(), MOST_THREADS)
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS:
        raise BrickError(f"threads {threads!r} is impossible: give a whole number from 1 to {MOST_THREADS}")
    return threads


def _of_environment() -> int:
    """What `OPENMP` says; as many as there may be where it says nothing that makes sense."""
    first = os.environ.get(OPENMP, "").partition(",")[0].strip()
    return int(first) if first.isascii() and first.isdigit() and int(first) else MOST_THREADS
