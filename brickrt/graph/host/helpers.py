"""Compiled loops of the host, whose items the threads of a run share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

from brickrt.ops.cpu.fixed_function import run_alone

LINE = 128
"""Bytes between the scratch of two workers, at least: they share no cache lines."""


@dataclass(frozen=True)
class Helpers:
    """So many `threads` run calls (function, argument, argument) of compiled functions at the same time. One that has
    not begun when the first ends may be left out."""

    threads: int
    run: Callable[[Sequence[tuple[int, int, int]]], None]


_helpers: ContextVar[Helpers | None] = ContextVar("helpers", default=None)


@contextmanager
def helped(helpers: Helpers | None) -> Iterator[None]:
    """Inside, these share the items of compiled loops; without them the calling thread does all."""
    token = _helpers.set(helpers)
    try:
        yield
    finally:
        _helpers.reset(token)


def run_items(function: int, count: int, words: Sequence[int], scratch: int = 0) -> None:
    """Runs a function of `count` items (see `ItemLoop`) with its own words, and so many bytes of scratch a worker. What
    the words point to must be alive."""
    helpers = _helpers.get()
    table = np.array([0, count, *words], np.int64)
    workers = 1 if helpers is None else max(1, min(helpers.threads, count))
    room = np.empty((workers, -(-scratch // LINE) * LINE + LINE), np.uint8)
    calls = [(function, table.ctypes.data, room.ctypes.data + k * room.shape[1]) for k in range(workers)]
    if helpers is None or workers == 1:
        run_alone(*calls[0])
    else:
        helpers.run(calls)
