"""A program in a pseudo-terminal, and the screens that it shows.

`brickrt` itself runs in forks of a server, `python -m tests.support.terminals`, which has imported what its commands
import: half of the time that it takes to start.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

import pyte

IMPORTED = "brickrt.cli.commands.run", "brickrt.cli.commands.demo", "brickrt.dashboard.live", "llvmlite.binding"
MESSAGE = 1 << 20  # bytes


class Server:
    """Starts `brickrt` in terminals. It and the programs in them end with this process."""

    def __init__(self) -> None:
        self._asks, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [sys.executable, "-m", "tests.support.terminals", str(theirs.fileno())]
        subprocess.Popen(words, cwd=Path(__file__).parents[2], pass_fds=[theirs.fileno()])
        theirs.close()

    def start(self, words: Sequence[str], size: tuple[int, int], folder: Path, env: Mapping[str, str]) -> list[int]:
        """The program's number, and a descriptor of its terminal."""
        self._asks.send(json.dumps([list(words), size, str(folder), dict(env)]).encode())
        data, (fd,), *_ = socket.recv_fds(self._asks, MESSAGE, 1)
        return [int(data), fd]

    def wait(self, pid: int) -> int:
        """The status of a program, when it has ended."""
        self._asks.send(json.dumps(pid).encode())
        return int(self._asks.recv(MESSAGE))


server = cache(Server)


def serve(asks: socket.socket) -> None:
    """Answers until nobody asks any more; returns in each program that it starts."""
    while data := asks.recv(MESSAGE):
        asked = json.loads(data)
        if isinstance(asked, int):
            asks.send(str(os.waitpid(asked, 0)[1]).encode())
            continue
        words, size, folder, env = asked
        pid, fd = pty.fork()
        if pid == 0:
            asks.close()
            in_terminal(folder, *size)
            os.environ.clear()
            os.environ.update(env)
            sys.argv = ["brickrt", *words]
            return
        socket.send_fds(asks, [str(pid).encode()], [fd])
        os.close(fd)
    os._exit(0)


def in_terminal(folder: str | Path, columns: int, rows: int) -> None:
    """What a program finds."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup`, under which tests may run, has it ignored
    os.chdir(folder)
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


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
        self._wait: Callable[[int], int] = server().wait
        if program:
            self._wait = lambda pid: os.waitpid(pid, 0)[1]
            self.pid, self.fd = pty.fork()
            if self.pid == 0:
                in_terminal(folder, columns, rows)
                os.execve(sys.executable, [sys.executable, *program, *words], child)
        else:
            self.pid, self.fd = server().start(words, (columns, rows), folder, child)
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
        status = self._wait(self.pid)
        os.close(self.fd)
        assert after[3] == self.before[3], "echo or line editing differ"
        assert self.raw.count(b"\x1b[?1049h") == self.raw.count(b"\x1b[?1049l"), "left on the alternate screen"
        assert self.raw.rfind(b"\x1b[?25l") <= self.raw.rfind(b"\x1b[?25h"), "the cursor is hidden"
        return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever interrupts the tests ends them, and with them this
    for name in IMPORTED:
        import_module(name)
    serve(socket.socket(fileno=int(sys.argv[1])))
    sys.exit(import_module("brickrt.cli").main())
