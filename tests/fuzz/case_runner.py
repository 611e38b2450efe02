"""A process that runs each case in a child of its own, with limits: one that dies or hangs is a finding.

The process imports everything once; a child forked from it starts in a few milliseconds, and leaves nothing behind.
"""

from __future__ import annotations

import os
from collections import Counter
from multiprocessing.connection import Connection
from typing import NamedTuple

from tests.fuzz.base_models import own_models
from tests.fuzz.other_runtimes import compared_with_others
from tests.fuzz.run_case import Case, outcome
from tests.support.cpu.in_child import in_child
from tests.support.programs.forks import server

SECONDS = 20
MOST = 1 << 30
"""Memory, that of the libraries included, that a process may have at a time for a small model."""
BYTES = 1 << 32
"""Memory that a case can get at all: far more than it may take, and less than would bring the machine down."""


class Verdict(NamedTuple):
    """What came of a case, and of comparing it with each other runtime; the most memory that it had, and its seconds of
    processor time."""

    word: str
    text: str
    peak: int
    spent: float
    compared: tuple[str, ...] = ()


class CaseRunner:
    """Runs cases; with `compared`, what ran is compared with other runtimes, and may come out as `differs`.

    `compared` then counts what became of comparisons, `peak` is the most memory that a case took, `spent` the processor
    time of the last one in seconds.
    """

    def __init__(self, seconds: int = SECONDS, compared: bool = False) -> None:
        self._here, there = server().Pipe()
        self._process = server().Process(target=_serve, args=(there, seconds, compared, dict(os.environ)))
        self._process.start()
        there.close()
        self._here.recv()
        self.compared, self.peak, self.spent = Counter[str](), 0, 0.0

    def __enter__(self) -> CaseRunner:
        return self

    def __exit__(self, *exc: object) -> None:
        self._here.close()
        self._process.join()

    def run(self, case: Case) -> tuple[str, str]:
        """What came of a case: as `outcome`, or `hung`, `died`, `ran out` (of memory), `heavy` (more than a process
        may) or `differs`."""
        self._here.send(case)
        verdict: Verdict = self._here.recv()
        self.compared.update(verdict.compared)
        self.peak, self.spent = max(self.peak, verdict.peak), verdict.spent
        return verdict.word, verdict.text


def _serve(parent: Connection, seconds: int, compared: bool, environment: dict[str, str]) -> None:
    """Answers cases until the parent is gone, in its environment. What libraries write is thrown away."""
    os.environ.clear()
    os.environ.update(environment, BRICKRT_CALIBRATE="0")
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


def _judged(case: Case, seconds: int, compared: bool) -> Verdict:
    how, found, *took = in_child(lambda: outcome(case), seconds, BYTES)
    word, text = (found.word, found.text) if how == "answered" else (how, found)
    if "memory ran out" in text:
        word = "ran out"
    if took[0] > MOST:
        return Verdict("heavy", f"{took[0] >> 20} MiB, {word}: {text}", *took)
    if how != "answered" or word == "ran out":
        return Verdict(word, text, *took)
    if not compared or found.outputs is None:
        return Verdict(found.word, found.text, *took)
    how, other, *_ = in_child(lambda: compared_with_others(case[0], found), seconds, BYTES)
    if how != "answered":
        return Verdict(found.word, found.text, *took, (f"another runtime {how}",))
    return Verdict("differs" if other.wrong else found.word, other.wrong or found.text, *took, other.told)
