"""Resident memory of this process."""

from __future__ import annotations

import sys


def resident_bytes() -> int | None:
    """What is resident now; None where the system does not tell."""
    return _status_bytes("VmRSS")


def peak_bytes() -> int | None:
    """The most that was resident since the program began."""
    return _status_bytes("VmHWM")


def _status_bytes(field: str) -> int | None:
    """A field of Linux's /proc/self/status. getrusage would not do: its peak includes the parent's before the fork."""
    if not sys.platform.startswith("linux"):
        return None
    with open("/proc/self/status") as file:
        return next((int(line.split()[1]) * 1024 for line in file if line.startswith(field)), None)
