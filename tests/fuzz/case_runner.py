"""A process that runs cases one after the other, with limits: one that dies or hangs is a finding, not the end."""

from __future__ import annotations

import multiprocessing
import os
import resource
from multiprocessing.connection import Connection

from tests.fuzz.run_case import Case, outcome

SECONDS = 20.0
BYTES = 6 << 30


class CaseRunner:
    """Runs cases in a process of its own, which is started again where a case ended it."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._start()

    def __enter__(self) -> CaseRunner:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop()

    def run(self, case: Case) -> tuple[str, str]:
        """What came of a case: as `outcome`, or `hung`, or `died`."""
        self._here.send(case)
        try:
            if self._here.poll(self._seconds):
                return self._here.recv()
            found = "hung", f"no result within {self._seconds:.0f} s"
        except EOFError:
            self._process.join()
            found = "died", f"exit code {self._process.exitcode}"
        self._stop()
        self._start()
        return found

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there,), daemon=True)
        self._process.start()
        there.close()
        self._here.recv()  # imports take longer than some limits

    def _stop(self) -> None:
        self._process.kill()
        self._process.join()
        self._here.close()


def _serve(parent: Connection) -> None:
    """Answers cases until the parent is gone. What libraries write is thrown away."""
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["BRICKRT_CALIBRATE"] = "0"
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    parent.send("ready")
    while True:
        try:
            case = parent.recv()
        except EOFError:
            return
        parent.send(outcome(case))
