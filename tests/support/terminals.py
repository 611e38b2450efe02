"""A program in a pseudo-terminal, and the screens that it shows."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyte


class Terminal:
    """A program of Python, `brickrt`, with some words, in a terminal of a size. `seen` are the screens it showed, as
    lines of text."""

    def __init__(
        self,
        words: Sequence[str],
        columns: int,
        rows: int,
        folder: Path,
        env: Mapping[str, str] | None = None,
        program: Sequence[str] = ("-m", "brickrt"),
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.raw, self.ended = b"", False
        self.seen: list[list[str]] = []
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup`, under which tests may run, has it ignored
            os.chdir(folder)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            child = {**os.environ, "TERM": "xterm-256color", **(env or {})}
            os.execve(sys.executable, [sys.executable, *program, *words], child)
        self.before = termios.tcgetattr(self.fd)

    def read(self, seconds: float, until: Callable[[Terminal], bool] = lambda _: False) -> bool:
        """Follows the program so long, until its end, or until something shows; whether that was seen."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    data = os.read(self.fd, 1 << 16)
                except OSError:  # the program has ended
                    data = b""
                if not data:
                    self.ended = True
                    return until(self)
                self.raw += data
                self.stream.feed(data)
                self.seen.append(list(self.screen.display))
            if until(self):
                return True
        return False

    def shows(self, text: str) -> Callable[[Terminal], bool]:
        return lambda _: any(text in row for row in self.screen.display)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def end(self, seconds: float = 60) -> int:
        """Waits for the program; its exit code. Also checks that the terminal is left as it was."""
        self.read(seconds)
        if not self.ended:
            os.kill(self.pid, signal.SIGKILL)
        after = termios.tcgetattr(self.fd)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        assert after[3] == self.before[3], "echo or line editing differ"
        assert self.raw.count(b"\x1b[?1049h") == self.raw.count(b"\x1b[?1049l"), "left on the alternate screen"
        assert self.raw.rfind(b"\x1b[?25l") <= self.raw.rfind(b"\x1b[?25h"), "the cursor is hidden"
        return os.waitstatus_to_exitcode(status)
