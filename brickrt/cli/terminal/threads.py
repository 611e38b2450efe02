"""A word on more threads than cores."""

from __future__ import annotations

from brickrt.cli.terminal.text import note
from brickrt.runtime.thread_count import usable_cores


def note_threads(threads: int) -> None:
    """Says that more threads than this process may use cores are slower. Call it once nothing can fail: an error is to
    be the only line."""
    cores = usable_cores()
    if threads > cores:
        several = f"{cores} cores" if cores > 1 else "one core"
        note(f"--threads {threads} is slower than --threads {cores}: this process may use {several}")
