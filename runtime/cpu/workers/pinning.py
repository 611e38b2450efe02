"""Which logical CPUs helper threads are pinned to.

A thread that is woken, or that yields, may be moved to the core of the thread it works for, and stay there for
milliseconds: several times what a small network takes.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

from brickrt.plan.device.machine import usable_cpus

_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def pin(cpu: int) -> None:
    """Keeps the calling thread on one CPU, where the system lets it."""
    try:
        os.sched_setaffinity(0, {cpu})
    except (AttributeError, OSError):
        return


def cores() -> dict[int, int]:
    """Each usable logical CPU → the one that stands for its core. Empty where `here` cannot tell the current CPU."""
    if not hasattr(os, "sched_getaffinity") or _where() is None:
        return {}
    first = {_siblings(cpu): cpu for cpu in reversed(usable_cpus())}
    return {cpu: first.get(_siblings(cpu), cpu) for cpu in os.sched_getaffinity(0)}


def here() -> int:
    """The logical CPU that runs the caller now, -1 where the system does not tell."""
    where = _where()
    return where() if where else -1


@cache
def _where() -> Callable[[], int] | None:
    return getattr(ctypes.CDLL(None), "sched_getcpu", None)


def _siblings(cpu: int) -> str:
    try:
        return Path(_SIBLINGS.format(cpu)).read_text()
    except OSError:
        return str(cpu)
