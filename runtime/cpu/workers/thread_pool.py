"""The helper threads of the process, which all programs share. They run compiled code only, and sleep when idle."""

from __future__ import annotations

import atexit
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.runtime.after_fork import tell_children
from brickrt.runtime.cpu.memory import aligned_empty
from brickrt.runtime.cpu.workers.mailbox_words import CLOSED, JOB_WORDS, MAILBOX_WORDS, MailboxFunctions
from brickrt.runtime.cpu.workers.pinning import cores, here, pin

_pools: list[ThreadPool] = []  # that of this process


class Helper:
    """A thread that serves one mailbox, on the given logical CPU or anywhere."""

    def __init__(self, cpu: int | None, functions: MailboxFunctions) -> None:
        self.cpu, self._functions = cpu, functions
        self._box = aligned_empty(8 * MAILBOX_WORDS)
        self._box[:] = 0
        self.address: int = self._box.ctypes.data
        functions.prepare(self.address)
        name = "brickrt" if cpu is None else f"brickrt-{cpu}"
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        if self.cpu is not None:
            pin(self.cpu)
        self._functions.serve(self.address)

    def close(self) -> None:
        """Ends the thread, which must be idle."""
        self._functions.tell(self.address, CLOSED)
        self._thread.join()


@dataclass(frozen=True, eq=False)
class Lease:
    """Helpers lent to a run. `cpu` is the logical CPU on which its calling thread began; None where other runs were
    under way."""

    cpu: int | None
    helpers: list[Helper]


class Jobs:
    """Calls of compiled functions that run at the same time, each (function, argument, argument)."""

    def __init__(self, calls: Sequence[tuple[int, int, int]]) -> None:
        table = np.array([(0, *call) for call in calls], np.int64).reshape(-1)
        assert len(table) == JOB_WORDS * len(calls)
        self.n, self.words, self.address = len(calls), table.data, table.ctypes.data
        self.lease: Lease | None = None

    def assign(self, lease: Lease) -> None:
        """Gives each job but the first to a helper."""
        self.lease = lease
        for k, helper in enumerate(lease.helpers):
            self.words[(k + 1) * JOB_WORDS] = helper.address


class ThreadPool:
    """Lends helpers to runs, and starts new ones where too few are free."""

    _last: Lease | None
    _runs: int
    _lock: threading.Lock

    def __init__(self, functions: MailboxFunctions) -> None:
        self._functions = functions
        self.after_fork()
        tell_children(self)
        atexit.register(self._close)

    def run(self, jobs: Jobs) -> None:
        """Runs the first job on this thread and the others on helpers. Returns when all that began have ended.

        A job that its helper has not begun by the end of the first is left out.
        """
        lease = self._lend(jobs.n - 1)
        if jobs.lease is not lease:
            jobs.assign(lease)
        try:
            self._functions.run_jobs(jobs.address, jobs.n)
        finally:
            self._take_back(lease)

    def _lend(self, n: int) -> Lease:
        """`n` helpers: those of the run before where they fit, else free ones, else new ones."""
        with self._lock:
            self._runs += 1
            cpu, lease = here(), self._last
            self._last = None
            if lease is not None:
                if lease.cpu == cpu and len(lease.helpers) == n and self._runs == 1:
                    return lease
                self._free_again(lease)
            alone = cpu if self._runs == 1 else None
            return Lease(alone, [self._helper(at) for at in self._cpus(n, cpu)])

    def _helper(self, at: int | None) -> Helper:
        return self._free[at].pop() if self._free[at] else Helper(at, self._functions)

    def _take_back(self, lease: Lease) -> None:
        with self._lock:
            self._runs -= 1
            if self._last is None:
                self._last = lease
            else:
                self._free_again(lease)

    def _free_again(self, lease: Lease) -> None:
        for helper in reversed(lease.helpers):  # those that were busy last may still be awake
            self._free[helper.cpu].append(helper)

    def _cpus(self, n: int, cpu: int) -> list[int | None]:
        """Logical CPUs for `n` helpers, each on a core of its own and none on that of `cpu`.

        None stands for any CPU: where cores are too few, or other runs are under way.
        """
        mine = self._cores.get(cpu)
        apart = [core for core in self._apart if core != mine]
        return [None] * n if mine is None or n > len(apart) or self._runs > 1 else list(apart[:n])

    def after_fork(self) -> None:
        """See `Forked`: starts without helpers, in a child as at first."""
        self._free: defaultdict[int | None, list[Helper]] = defaultdict(list)
        self._last = None
        self._runs = 0
        self._lock = threading.Lock()
        self._cores = cores()
        self._apart = sorted(set(self._cores.values()))

    def _close(self) -> None:
        with self._lock:
            if self._last is not None:
                self._free_again(self._last)
            for free in self._free.values():
                while free:
                    free.pop().close()


def thread_pool(functions: Callable[[], MailboxFunctions]) -> ThreadPool:
    """The pool of this process. Whoever asks first gives the functions that its helpers run; those of any other program
    of this version of brickrt work on the same words."""
    if not _pools:
        _pools.append(ThreadPool(functions()))
    return _pools[0]  # of two threads that come at once, both get the first
