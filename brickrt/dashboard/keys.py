"""Single keys from the terminal, without waiting for a line; the terminal is left as it was found."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator


class Keys:
    """Keys typed on standard input; none where that is no terminal, or the system has no termios."""

    def __init__(self) -> None:
        self._fd, self._before = -1, None
        try:
            import termios
            import tty
        except ImportError:  # Windows: the dashboard works, without keys
            return
        if sys.stdin is not None and sys.stdin.isatty():
            self._fd = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)

    def read(self, seconds: float) -> Iterator[str]:
        """Waits so long; yields the keys typed meanwhile."""
        if self._fd < 0:
            time.sleep(seconds)
            return
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([self._fd], [], [], left)
            if ready:
                yield from os.read(self._fd, 64).decode(errors="ignore")

    def close(self) -> None:
        """The terminal as it was."""
        if self._before is not None:
            import termios

            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)
            self._fd, self._before = -1, None
