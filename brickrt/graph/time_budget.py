"""How long brickrt may be busy with a model before it runs. What is counted is computing time of the thread, so that a
busy machine refuses nothing that an idle one takes."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from brickrt.graph.environment_limits import environment_limit
from brickrt.graph.errors import BrickError, Interrupted

VARIABLE = "BRICKRT_PREPARE_SECONDS"
FOLDING_SHARE = 0.25
"""Of the time that is left, what folding one node may take."""

LOOK_NS = 1_000_000
"""Nanoseconds between looks at a clock while a library computes."""
UNWATCHED_ELEMENTS = 1024
"""Elements: to compute with so few takes less than to watch the clock meanwhile."""

_end: ContextVar[float] = ContextVar("end", default=math.inf)
_allowed: ContextVar[float] = ContextVar("allowed", default=math.inf)
"""Seconds from the beginning to the end."""
_next_look: ContextVar[float] = ContextVar("next_look", default=0.0)
"""By the clock of the wall, which is a tenth of the price of a thread's: the thread is not done before."""


class TooLong(Interrupted):
    """What was computed took longer than it may, and was left."""


def allowed_seconds() -> float:
    """What importing a model may take, and specializing, planning and lowering each part of it; 0 is no limit."""
    return environment_limit(VARIABLE)


@contextmanager
def preparing(times: float = 1.0) -> Iterator[None]:
    """Inside, `check_time` raises once this thread has computed for as long as is allowed, so many `times`. Inside
    another: as there."""
    if _end.get() < math.inf:
        yield
        return
    allowed = times * allowed_seconds()
    tokens = _end.set(time.thread_time() + allowed), _next_look.set(0.0), _allowed.set(allowed)
    try:
        yield
    finally:
        for variable, token in zip((_end, _next_look, _allowed), tokens, strict=True):
            variable.reset(token)


@contextmanager
def not_counted() -> Iterator[None]:
    """What is computed inside does not count: the caller sees how far it is."""
    began, end = time.thread_time(), _end.get()
    token = _end.set(math.inf)
    try:
        yield
    finally:
        _end.reset(token)
        _end.set(end + time.thread_time() - began)


def check_time(doing: str, name: str) -> None:
    """Raises BrickError where preparing has taken longer than allowed; it says what is under way, and at what."""
    end = _end.get()
    if end == math.inf or time.perf_counter() < _next_look.get():
        return
    left = end - time.thread_time()
    _next_look.set(time.perf_counter() + left)
    if left < 0:
        raise BrickError(
            f"{doing} '{name}': brickrt has been busy with the model for {_allowed.get():.3g} s, and not run it yet: "
            f"set {VARIABLE} to more seconds, or to 0 for no limit"
        )


@contextmanager
def folding(elements: float = math.inf) -> Iterator[None]:
    """Inside, what Python computes raises TooLong, at its next call, once it has taken a share of the time left. Where
    it reads and gives few `elements` there is no limit.

    A profile function sees every call in this thread: from nowhere else can the loops of a library be left. Where a
    profiler runs already there is no limit.
    """
    end = (
        time.thread_time() + FOLDING_SHARE * (_end.get() - time.thread_time())
        if elements > UNWATCHED_ELEMENTS
        else math.inf
    )
    if end == math.inf:
        yield
        return

    def look() -> None:
        if time.thread_time() > end:
            raise TooLong

    with at_calls(look):
        yield


@contextmanager
def at_calls(look: Callable[[], None]) -> Iterator[None]:
    """Inside, `look` is called at calls in this thread, once a millisecond at most; what it raises leaves even a
    library's loops. Where a profiler runs already it is not."""
    if sys.getprofile() is not None:
        yield
        return
    due = 0

    def watch(*_: object) -> None:
        nonlocal due
        now = time.perf_counter_ns()
        if now >= due:
            due = now + LOOK_NS
            look()

    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)
