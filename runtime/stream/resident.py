"""What of this process is in memory."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

USUAL = 256 * 2**20  # of a process that has imported all, where the system does not say


def resident_bytes() -> int:
    """Bytes in memory now."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return USUAL


def peak_bytes() -> int:
    """The most that were in memory at a time."""
    with suppress(OSError):
        status = Path("/proc/self/status").read_text()
        found = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(found.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
