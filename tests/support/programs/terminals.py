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

from tests.support.programs import forks


def sized(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Terminal:
    """`brickrt`, or another program of Python, with some words, in a terminal of a size. `seen` are the screens it
    showed, as lines of text."""

    def __init__(
        self,
        words: Sequence[str],
        columns: int,
        rows: int,
        folder: Path,
        env: Mapping[str, str] | None = None,
        program: Sequence[str] = (),
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.raw, self.ended = b"", False
        self.seen: list[list[str]] = []
        child = {**os.environ, "TERM": "xterm-256color", **(env or {})}
        self._process = None
        if program:
            self.pid, self.fd = pty.fork()
            if self.pid == 0:
                forks.listen()
                os.chdir(folder)
                sized(0, columns, rows)
                os.execve(sys.executable, [sys.executable, *program, *words], child)
        else:
            self.fd, theirs = pty.openpty()
            sized(theirs, columns, rows)
            self._process = forks.started(["-m", "brickrt", *words], [theirs], folder, child, terminal=True)
            self.pid = self._process.pid
            os.close(theirs)
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
        sized(self.fd, columns, rows)

    def type(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def end(self, seconds: float = 60) -> int:
        """Waits for the program; its exit code. Also checks that the terminal is left as it was."""
        self.read(seconds)
        if not self.ended:
            os.kill(self.pid, signal.SIGKILL)
        after = termios.tcgetattr(self.fd)
        code = self._code()
        os.close(self.fd)
        assert after[3] == self.before[3], "echo or line editing differ"
        assert self.raw.count(b"\x1b[?1049h") == self.raw.count(b"\x1b[?1049l"), "left on the alternate screen"
        assert self.raw.rfind(b"\x1b[?25l") <= self.raw.rfind(b"\x1b[?25h"), "the cursor is hidden"
        return code

    def _code(self) -> int:
        if self._process is None:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._process.join()
        return self._process.exitcode
