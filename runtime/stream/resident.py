"""What of this process is in memory."""

from __future__ import annotations

import os
import sys

ASSUMED_RESIDENT_BYTES = 256 * 2**20  # of a process that has imported all, where the system does not say


_most_seen: dict[int, int] = {}  # by process, since a child begins anew


def resident_bytes() -> int:
    """Bytes in memory now."""
    found = status_bytes("VmRSS") or ASSUMED_RESIDENT_BYTES
    _most_seen[os.getpid()] = max(found, _most_seen.get(os.getpid(), 0))
    return found


def peak_bytes() -> int:
    """The most that were in memory at a time. Linux counts pages for each processor apart, so its own figure may be a
    few pages less than one that was seen."""
    found = status_bytes("VmHWM")
    if found is not None:
        return max(found, _most_seen.get(os.getpid(), 0))
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def status_bytes(field: str) -> int | None:
    """A field of Linux's /proc/self/status, such as VmRSS; None on other systems. getrusage would not do there: its
    peak includes the parent's before the fork."""
    if not sys.platform.startswith("linux"):
        return None
    with open("/proc/self/status") as file:
        return next((int(line.split()[1]) * 1024 for line in file if line.startswith(field)), None)
