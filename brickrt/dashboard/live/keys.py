"""Single keys from the terminal, without waiting for a line; the terminal is left as it was found."""

from __future__ import annotations

import os
import re
import select
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.|.?)", re.DOTALL)  # arrows and the like, of several characters
LOOK = 0.05  # seconds between two looks at whether to stop


class Keys:
    """Keys typed on standard input. There are none where not `wanted`, where standard input is not the terminal that
    controls this process or the process is in its background, and on systems without termios."""

    def __init__(self, wanted: bool = True) -> None:
        self._fd, self._before = -1, None
        try:
            import termios
            import tty
        except ImportError:  # Windows: the dashboard works, without keys
            return
        ours = wanted and sys.stdin is not None and sys.stdin.isatty()
        if ours and _foreground(sys.stdin) == os.getpgrp():
            self._fd = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)

    def read(self, seconds: float, stop: threading.Event) -> Iterator[str]:
        """Waits for `seconds`, or until `stop` is set; yields the keys typed meanwhile."""
        end = time.monotonic() + seconds
        while (left := min(LOOK, end - time.monotonic())) > 0 and not stop.is_set():
            if self._fd < 0:
                stop.wait(left)
            elif select.select([fd := self._fd], [], [], left)[0] and fd == self._fd:
                typed = os.read(fd, 64)
                if not typed:  # the terminal is gone
                    self._fd = -1
                yield from SEQUENCE.sub("", typed.decode(errors="ignore"))

    def close(self) -> None:
        """Lets the terminal wait for whole lines again."""
        if self._before is not None:
            import termios

            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._before)
            self._fd, self._before = -1, None


def in_foreground(stream: TextIO) -> bool:
    """Whether a terminal is ours now. A process in the background would be stopped for touching its own terminal; of
    another session's no foreground is known, and it may be touched."""
    group = _foreground(stream)
    return group is None or group == os.getpgrp()


def _foreground(stream: TextIO) -> int | None:
    """The process group in the foreground of a terminal; None where it is not the one that controls this process."""
    try:
        return os.tcgetpgrp(stream.fileno())
    except (OSError, AttributeError):
        return None
