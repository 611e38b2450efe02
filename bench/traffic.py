"""Measured memory traffic of this process, through `perf stat` where the machine has it and lets us count."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from functools import cache

EVENTS = ("cache-misses", "LLC-load-misses")
LINE = 64  # bytes
ATTACHING = 0.3  # seconds until perf counts


def measured_bytes(run: Callable[[], object], repeats: int) -> dict[str, float]:
    """Bytes per run and event, a cache line each; {} where nothing can be counted.

    What a miss is differs: "cache-misses" are those of the last level on Intel, of the second on AMD.
    """
    if why_not() is not None:
        return {}
    counts = _counted(lambda: [run() for _ in range(repeats)])
    return {event: LINE * count / repeats for event, count in counts.items()}


@cache
def why_not() -> str | None:
    """Why traffic cannot be measured here, or None."""
    if shutil.which("perf") is None:
        return "there is no perf"
    return None if _counted(lambda: time.sleep(0.1)) else "perf counts no cache misses here"


def _counted(work: Callable[[], object]) -> dict[str, int]:
    """Events of this process and its threads while it works; those that the machine does not count are missing."""
    command = ["perf", "stat", "-x", ",", "-e", ",".join(EVENTS), "-p", str(os.getpid())]
    perf = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    time.sleep(ATTACHING)
    work()
    perf.send_signal(signal.SIGINT)
    return parsed(perf.communicate(timeout=30)[1])


def parsed(text: str) -> dict[str, int]:
    """Counts by event from what `perf stat -x ,` prints: `count,unit,event,…`."""
    rows = [line.split(",") for line in text.splitlines()]
    return {row[2].split(":")[0]: int(row[0]) for row in rows if len(row) > 2 and row[0].isdigit()}
