"""Calls a function in a forked child with limits: one that crashes or hangs is told of, and ends nothing else."""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from brickrt.graph.room import mapped_bytes

KIB = 1 if sys.platform == "darwin" else 1 << 10
"""Bytes of the unit in which the system counts memory."""


class Ended(NamedTuple):
    """How a child ended: with an answer; `hung`, and then where; or `died`, and then how. `peak` is the most memory, in
    bytes, that it or a process of its own had at a time, what it shares with this one included; `spent` are its seconds
    of processor time."""

    how: Literal["answered", "hung", "died"]
    answer: Any
    peak: int = 0
    spent: float = 0.0


class TimeIsOver(BaseException):
    """The child has computed for as long as it may."""


def in_child(work: Callable[[], Any], seconds: int, nbytes: int | None = None) -> Ended:
    """Calls `work` in a child that may compute for so many seconds, three times as long by the clock, and take so much
    memory beside what this process has."""
    mine, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(mine)
        _answer(work, theirs, seconds, nbytes)
    os.close(theirs)
    data, in_time = _all_of(mine, 3 * seconds)
    if not in_time:
        os.kill(child, signal.SIGXCPU)  # it says where it is, if it still can
        data, in_time = _all_of(mine, 2)
    os.close(mine)
    if not in_time:
        os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    code, took = os.waitstatus_to_exitcode(status), (used.ru_maxrss * KIB, used.ru_utime + used.ru_stime)
    if not in_time or code == -signal.SIGXCPU:
        return Ended("hung", f"no result within {seconds} s", *took)
    return Ended(*pickle.loads(data), *took) if code == 0 and data else Ended("died", f"exit code {code}", *took)


def _answer(work: Callable[[], Any], pipe: int, seconds: int, nbytes: int | None) -> None:
    """The child's part: it never returns."""
    faulthandler.disable()  # a crash is told of by the parent
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 2))
    if nbytes is not None:
        most = mapped_bytes() + nbytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    signal.signal(signal.SIGXCPU, _time_is_over)
    code = 1
    try:
        try:
            data = pickle.dumps(("answered", work()))
        except TimeIsOver:
            data = pickle.dumps(("hung", traceback.format_exc()))
        except Exception:
            data = pickle.dumps(("died", traceback.format_exc()))
        while data:
            data = data[os.write(pipe, data) :]
        code = 0
    finally:
        os._exit(code)


def _time_is_over(*_: object) -> None:
    raise TimeIsOver


def _all_of(pipe: int, seconds: float) -> tuple[bytes, bool]:
    """All that is written to a pipe until it is closed, and whether that was in time."""
    end, parts = time.monotonic() + seconds, []
    while select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
        part = os.read(pipe, 1 << 20)
        if not part:
            return b"".join(parts), True
        parts.append(part)
    return b"", False
