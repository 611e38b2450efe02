"""Threads that share the items of compiled loops of the host."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from brickrt.ops.cpu.fixed_function import run_alone


def by_threads(calls: Sequence[tuple[int, int, int]]) -> None:
    """Runs each call on a thread of its own."""
    with ThreadPoolExecutor(len(calls)) as threads:
        list(threads.map(lambda call: run_alone(*call), calls))
