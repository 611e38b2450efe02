"""A limit of the system's own on the memory that this process may still get."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from brickrt.graph.errors import BrickError
from brickrt.runtime.stream.resident import resident_bytes

STACK = 8 * 2**20  # of a thread, where it has no limit
THREADS = 8  # that start in a run beside the workers and those that move rows


@contextmanager
def data_limit(limit: int | None, threads: int) -> Iterator[None]:
    """While this lasts, the process gets no more private memory than `limit` bytes less what is resident now, and room
    for the stacks of the threads that it starts, of which hardly any is used. None: all that it asks for.

    The system counts what is mapped, not what is resident: the limit is on the growth."""
    if limit is None:
        yield
        return
    if sys.platform != "linux":
        raise BrickError("--hard needs Linux: leave it out")
    import resource  # here, as Windows lacks it

    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
    stacks = (2 * threads + THREADS) * (STACK if stack == resource.RLIM_INFINITY else stack)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = _data_bytes() + max(0, limit - resident_bytes()) + stacks
    highest = allowed if before[1] == resource.RLIM_INFINITY else min(allowed, before[1])
    resource.setrlimit(resource.RLIMIT_DATA, (highest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _data_bytes() -> int:
    """Private memory that is mapped now."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmData:")[1].split()[0]) * 1024
