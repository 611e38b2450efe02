"""A process that runs each case in a child of its own, with limits: one that dies or hangs is a finding.

The process imports everything once; a child forked from it starts in a few milliseconds, and leaves nothing behind.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import resource
import select
import signal
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from brickrt.graph.room import mapped_bytes
from tests.fuzz.base_models import own_models
from tests.fuzz.other_runtimes import disagreement
from tests.fuzz.run_case import Case, Outcome, outcome

SECONDS = 20
"""CPU time of a case; it has three times as much by the clock, since other processes run beside it."""
BYTES = 1 << 30
"""Memory that a case may take beside what this process has: asked for more, brickrt must refuse before it is spent."""


RUNNING = "in run_host\n"
"""In the traceback of a case that has begun to run, and calls for a long run on the host, as in a loop."""


class TimeIsOver(BaseException):
    """A case has computed for as long as it may."""


class Ended(NamedTuple):
    """How a child ended: what it answered, None where it did not, and then why not."""

    answer: Any
    why: tuple[str, str]


class CaseRunner:
    """Runs cases; with `compared`, what ran is compared with other runtimes, and may come out as `differs`."""

    def __init__(self, seconds: int = SECONDS, compared: bool = False) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, seconds, compared))
        self._process.start()
        there.close()
        self._here.recv()

    def __enter__(self) -> CaseRunner:
        return self

    def __exit__(self, *exc: object) -> None:
        self._here.close()
        self._process.join()

    def run(self, case: Case) -> tuple[str, str]:
        """What came of a case: as `outcome`, or `hung`, `long`, `died`, `ran out` (of memory) or `differs`.

        It is `long` where the model runs, and asks for a long run itself, as loops can.
        """
        self._here.send(case)
        return self._here.recv()


def _serve(parent: Connection, seconds: int, compared: bool) -> None:
    """Answers cases until the parent is gone. What libraries write is thrown away."""
    os.environ["BRICKRT_CALIBRATE"] = "0"
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    for model in own_models():  # what is imported on first use is imported here, once for all cases
        outcome((model.SerializeToString(), "reference"))
    parent.send("ready")
    while True:
        try:
            case = parent.recv()
        except EOFError:
            return
        parent.send(_judged(case, seconds, compared))


def _judged(case: Case, seconds: int, compared: bool) -> tuple[str, str]:
    found, why = in_child(lambda: outcome(case), seconds)
    if found is None:
        return why
    if "memory ran out" in found.text:
        return "ran out", found.text
    if compared and found.outputs is not None:
        other, _ = in_child(lambda: disagreement(case[0], found), seconds)
        if other:
            return "differs", other
    return found.word, found.text


def in_child(work: Callable[[], Any], seconds: int) -> Ended:
    """Calls `work` in a forked child of limited time and memory."""
    mine, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(mine)
        _answer(work, theirs, seconds)
    os.close(theirs)
    data, in_time = _all_of(mine, 3 * seconds)
    if not in_time:
        os.kill(child, signal.SIGXCPU)  # it says where it is, if it still can
        data, in_time = _all_of(mine, 2)
    os.close(mine)
    if not in_time:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if not in_time or code == -signal.SIGXCPU:
        why = "hung", f"no result within {seconds} s"
    else:
        why = "died", f"exit code {code}"
    return Ended(pickle.loads(data) if code == 0 and data else None, why)


def _answer(work: Callable[[], Any], pipe: int, seconds: int) -> None:
    """The child's part: it never returns."""
    most = mapped_bytes() + BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 2))
    signal.signal(signal.SIGXCPU, _time_is_over)
    code = 1
    try:
        try:
            data = pickle.dumps(work())
        except TimeIsOver:
            where = traceback.format_exc()
            data = pickle.dumps(Outcome("long" if RUNNING in where else "hung", where))
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
