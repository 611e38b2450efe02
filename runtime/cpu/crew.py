"""The process's helper threads, for all programs: outside Python from their start on, asleep when nothing is to do."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Sequence
from functools import cache

import numpy as np

from brickrt.ops.cpu.isa import Isa
from brickrt.runtime.cpu.mailbox import CLOSED, JOB_WORDS, MAILBOX_WORDS, mailbox_module
from brickrt.runtime.cpu.memory import aligned_empty
from brickrt.runtime.cpu.native import load_functions

_ANY = Isa(1, 16)  # no vectors in it


class Helper:
    """A thread that serves one mailbox."""

    def __init__(self, number: int) -> None:
        self._box = aligned_empty(8 * MAILBOX_WORDS)
        self._box[:] = 0
        self.address: int = self._box.ctypes.data
        native = _native()
        native["prepare"](self.address)
        name = f"brickrt-{number}"
        self._thread = threading.Thread(target=native["serve"], args=(self.address,), name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, which must be idle."""
        _native()["tell"](self.address, CLOSED)
        self._thread.join()


class Jobs:
    """Calls of compiled functions of two arguments, made at once: (function, argument, argument) each."""

    def __init__(self, calls: Sequence[tuple[int, int, int]]) -> None:
        table = np.array([(0, *call) for call in calls], np.int64).reshape(-1)
        assert len(table) == JOB_WORDS * len(calls)
        self.n, self.words, self.address = len(calls), memoryview(table), table.ctypes.data
        self.lead = _native()["lead"]


class Crew:
    """Helpers that are free, and how programs get them."""

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)
        atexit.register(self._close)

    def lead(self, jobs: Jobs) -> None:
        """Does all jobs, the first on this thread. Those that no helper comes to in time are left undone."""
        helpers = self._take(jobs.n - 1)
        for k, helper in enumerate(helpers):
            jobs.words[(k + 1) * JOB_WORDS] = helper.address
        try:
            jobs.lead(jobs.address, jobs.n)
        finally:
            self._free += helpers

    def _take(self, n: int) -> list[Helper]:
        """The helpers that were busy last, who may still be awake; new ones join where there are too few."""
        with self._lock:
            while len(self._free) < n:
                self._hired += 1
                self._free.append(Helper(self._hired))
            first = len(self._free) - n
            taken = self._free[first:]
            del self._free[first:]
            return taken

    def _forget(self) -> None:
        """A process has no threads but its first; a fork begins with that."""
        self._free: list[Helper] = []
        self._hired = 0
        self._lock = threading.Lock()

    def _close(self) -> None:
        with self._lock:
            while self._free:
                self._free.pop().close()


@cache
def _native() -> dict:
    pointer, word = ctypes.c_void_p, ctypes.c_int64
    arguments = {"prepare": [pointer], "serve": [pointer], "tell": [pointer, word], "lead": [pointer, word]}
    return load_functions("mailbox", _ANY, mailbox_module, arguments)


@cache
def crew() -> Crew:
    """The crew of this process."""
    return Crew()
