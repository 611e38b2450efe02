"""Where the words of a mailbox and of a job lie; `mailbox.py` has the code that works on them. Nothing here needs the
compiler: programs from files use these too."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

EMPTY, POSTED, TAKEN, CLOSED = range(4)
STATE, JOB, MUTEX, CONDITION = 0, 8, 16, 24
MAILBOX_WORDS = 32
JOB_WORDS = 4  # mailbox (of the first job none), function, and its two arguments
FUNCTIONS = ("prepare", "serve", "tell", "run_jobs")


@dataclass(frozen=True, eq=False)
class MailboxFunctions:
    """The compiled functions of mailboxes, which stay until the process ends: threads are in them."""

    prepare: Callable[[int], None]
    serve: Callable[[int], None]
    tell: Callable[[int, int], None]
    run_jobs: Callable[[int, int], None]

    @staticmethod
    def at(address: Callable[[str], int]) -> MailboxFunctions:
        """The functions whose addresses are known by name."""
        one, two = (ctypes.c_void_p,), (ctypes.c_void_p, ctypes.c_int64)
        kinds = (one, one, two, two)
        return MailboxFunctions(*(ctypes.CFUNCTYPE(None, *kind)(address(n)) for n, kind in zip(FUNCTIONS, kinds)))
