"""Compiles kernels with all cores. LLVM holds a lock while it compiles, so helpers are processes.

A helper is this module run by a fresh interpreter, which needs nothing of the caller's main module. It reads pickled
(digest, kernel) from its standard input, from its parent alone, answers each with its pickled machine code, and ends
when its input does: no helper outlives its parent.
"""

from __future__ import annotations

import gc
import itertools
import math
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from queue import Empty, PriorityQueue, SimpleQueue
from typing import NamedTuple

from brickrt.graph.uncollected import uncollected
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.sized_kernel import SizedCode, compiled_code
from brickrt.runtime.cpu.compile.kernel_digest import kernel_digest
from brickrt.runtime.thread_count import usable_cores

KERNELS_PER_HELPER = 5  # from which on starting a helper pays


def build(kernel: Kernel) -> SizedCode:
    """Machine code of one kernel, in a function that no other code is named after."""
    with uncollected():  # or to emit takes twice as long
        return compiled_code(kernel, f"brick_{kernel_digest(kernel)}")


class CompileJob(NamedTuple):
    """A kernel to compile, by digest, or None to end a thread; the queue gives the least `rank` first, then the least
    `number`."""

    rank: float
    number: int
    kernel: tuple[str, Kernel] | None


class Compilation:
    """Compiles kernels, those that take longest first: helpers begin as soon as enough are asked for, and `images`
    compiles in this process.

    A context manager; leaving it ends the helpers, even while they compile.
    """

    def __init__(self) -> None:
        self.asked = 0
        self._number = itertools.count()
        self._todo: PriorityQueue[CompileJob] = PriorityQueue()
        self._done: SimpleQueue[tuple[str, SizedCode] | None] = SimpleQueue()  # None: a helper failed
        self._helpers: list[subprocess.Popen] = []
        self._threads: list[threading.Thread] = []

    def ask(self, digest: str, kernel: Kernel) -> None:
        """Asks for a kernel's machine code."""
        self.asked += 1
        self._todo.put(CompileJob(-effort(kernel), next(self._number), (digest, kernel)))
        if len(self._helpers) + 1 < min(usable_cores(), self.asked // KERNELS_PER_HELPER):
            self._help()

    def images(self) -> Iterator[tuple[str, SizedCode]]:
        """Machine code by digest, as it is ready, of all that was asked for."""
        left, self.asked = self.asked, 0
        while left:
            made = self._next()
            if made is not None:
                left -= 1
                yield made

    def __enter__(self) -> Compilation:
        return self

    def __exit__(self, *exc: object) -> None:
        for helper in self._helpers:
            helper.kill()
            self._todo.put(CompileJob(-math.inf, next(self._number), None))
        for thread in self._threads:
            thread.join()
        for helper in self._helpers:
            helper.communicate()

    def _next(self) -> tuple[str, SizedCode] | None:
        """Code that a helper has finished, else some compiled here; waits where nothing is left to compile.

        None where a helper failed.
        """
        if self._done.empty():
            try:
                kernel = self._todo.get_nowait().kernel
            except Empty:
                return self._done.get()
            assert kernel is not None
            return kernel[0], build(kernel[1])
        return self._done.get()

    def _help(self) -> None:
        """Starts one helper, and a thread that feeds it."""
        helper = subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._helpers.append(helper)
        self._threads.append(threading.Thread(target=self._feed, args=(helper,), daemon=True))
        self._threads[-1].start()

    def _feed(self, helper: subprocess.Popen) -> None:
        """Has a helper compile until nothing is left. Where it fails, the kernel goes back to the queue."""
        while (work := self._todo.get()).kernel is not None:
            image = _answer(helper, work.kernel)
            if image is None:
                self._todo.put(work)
                self._done.put(None)
                return
            self._done.put((work.kernel[0], image))


def effort(kernel: Kernel) -> int:
    """Roughly how long compiling takes, without a unit; code grows with the operator's expressions too."""
    return 1000 * kernel.effort + len(repr(kernel.op))


def _answer(helper: subprocess.Popen, kernel: tuple[str, Kernel]) -> SizedCode | None:
    """The machine code that a helper gives. None where it fails: this process then compiles, and raises the error."""
    assert helper.stdin is not None and helper.stdout is not None
    try:
        pickle.dump(kernel, helper.stdin)
        helper.stdin.flush()
        return pickle.load(helper.stdout)
    except (OSError, EOFError, pickle.UnpicklingError):
        return None


def serve() -> None:
    """Runs a helper. Its garbage is collected between kernels: modules under construction hold many cycles."""
    gc.freeze()
    gc.disable()
    while True:
        try:
            _, kernel = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(build(kernel), sys.stdout.buffer)
        sys.stdout.buffer.flush()
        gc.collect()
