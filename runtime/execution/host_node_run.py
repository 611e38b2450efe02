"""A node under way on the host: whether it goes on, and what it has computed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from brickrt.graph.allowance import allowance
from brickrt.graph.builder import OnnxNode
from brickrt.runtime.program_protocol import Cancelled, Program


class HostNodeRun:
    """A node that runs on the host. A loop asks, round by round, whether it is cancelled, or takes too long; `program`
    is what a round runs just now."""

    def __init__(self, node: OnnxNode) -> None:
        self._cancelled, self._node = False, node
        self._began, self._allowed = time.thread_time(), allowance()
        self.program: Program | None = None

    def cancel(self) -> None:
        """See `Cancellable`."""
        self._cancelled = True
        program = self.program
        if program is not None:
            program.cancel()

    def check(self) -> None:
        """Raises Cancelled after `cancel`, and BrickError where nodes on the host have computed too long."""
        if self._cancelled:
            raise Cancelled
        if self._allowed is not None:
            node = f"{self._node.op_type} node '{self._node.name}'"
            self._allowed.check_seconds(time.thread_time() - self._began, node)

    @contextmanager
    def not_counting(self) -> Iterator[None]:
        """What is computed inside, such as machine code, is not the node's."""
        began = time.thread_time()
        try:
            yield
        finally:
            self._began += time.thread_time() - began

    def ended(self) -> None:
        """Counts what it has computed."""
        if self._allowed is not None:
            self._allowed.spent += time.thread_time() - self._began
