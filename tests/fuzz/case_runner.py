"""A process that runs each case in a child of its own, with limits: one that dies or hangs is a finding.

The process imports everything once; a child forked from it starts in a few milliseconds, and leaves nothing behind.
"""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection

from tests.fuzz.base_models import own_models
from tests.fuzz.other_runtimes import disagreement
from tests.fuzz.run_case import Case, outcome
from tests.support.cpu.in_child import in_child

SECONDS = 20
BYTES = 1 << 30
"""Memory that a case may take beside what this process has: asked for more, brickrt must refuse before it is spent."""
RUNNING = "in run_host\n"
"""In the traceback of a case that has begun to run, and calls for a long run on the host, as in a loop."""


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
    how, found = in_child(lambda: outcome(case), seconds, BYTES)
    if how != "answered":
        return "long" if RUNNING in found else how, found
    if "memory ran out" in found.text:
        return "ran out", found.text
    if compared and found.outputs is not None:
        how, other = in_child(lambda: disagreement(case[0], found), seconds, BYTES)
        if how == "answered" and other:
            return "differs", other
    return found.word, found.text
