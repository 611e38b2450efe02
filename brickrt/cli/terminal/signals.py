"""Signals: Ctrl-C, Ctrl-Z, the end of the terminal. The main thread may be in compiled code, and not hear them.

Python notes each signal in a pipe as soon as it comes; a thread reads it. What ends the process (Ctrl-C, SIGTERM,
SIGHUP) cancels the runs under way and raises KeyboardInterrupt in the main thread, so that everything is unwound. Where
that takes longer than PATIENCE, as a node that NumPy computes for seconds may, or at a second such signal, the process
ends at once, with the terminal restored and no unfinished file. What was ignored at the start stays ignored: under
`nohup` SIGHUP ends nothing.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from brickrt.cli.files import remove_unfinished
from brickrt.dashboard.live.terminal_restore import restore_terminal

PATIENCE = 2.0  # seconds
ENDING = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "hung up"}
_DONE = 0  # no signal has this number
_active: Signals | None = None


class Signals:
    """Hears signals for as long as `heard` lasts. `ended_by` is the first that ends the process."""

    def __init__(self) -> None:
        self.cancels: list[Callable[[], None]] = []
        self.ended_by: signal.Signals | None = None
        self._deadline: float | None = None

    def listen(self) -> None:
        """Handles signals as they come, in a thread, until `_DONE` is read."""
        while True:
            wait = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            if not select.select([self._read], [], [], wait)[0]:
                self._end_at_once()
            for number in os.read(self._read, 64):
                if number == _DONE:
                    return
                self._heard(signal.Signals(number))

    def _heard(self, which: signal.Signals) -> None:
        if which.name == "SIGTSTP":
            restore_terminal()
            _stop()
        elif which.name not in ENDING:
            return
        elif self._deadline is not None:
            self._end_at_once()
        else:
            self.ended_by, self._deadline = which, time.monotonic() + PATIENCE
            for cancel in tuple(self.cancels):
                cancel()

    def _end_at_once(self) -> None:
        restore_terminal()
        remove_unfinished()
        assert self.ended_by is not None
        with suppress(OSError):
            os.write(2, f"brickrt: {ENDING[self.ended_by.name]}\n".encode())
        os._exit(128 + self.ended_by)

    def install(self) -> Callable[[], None]:
        """Starts to hear signals; returns a function that stops it. Handlers that others have installed stay."""
        ours = {"SIGTERM": _raise, "SIGHUP": _raise, "SIGTSTP": _pass}
        numbers = {getattr(signal, name): handler for name, handler in ours.items() if hasattr(signal, name)}
        mine = {n: handler for n, handler in numbers.items() if signal.getsignal(n) is signal.SIG_DFL}
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number, handler in mine.items():
            signal.signal(number, handler)
        listener = threading.Thread(target=self.listen, name="brickrt-signals", daemon=True)
        listener.start()

        def uninstall() -> None:
            for number in mine:
                signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(before)
            os.write(self._write, bytes([_DONE]))
            listener.join()
            os.close(self._read)
            os.close(self._write)

        return uninstall


@contextmanager
def heard(signals: Signals) -> Iterator[None]:
    """Hears signals while this lasts. Does nothing without POSIX, or outside the main thread, which alone gets any."""
    global _active
    if threading.current_thread() is not threading.main_thread() or os.name != "posix":
        yield
        return
    uninstall = signals.install()
    _active = signals
    try:
        yield
    finally:
        _active = None
        uninstall()


def current() -> Signals | None:
    """The signals that are heard now, if any."""
    return _active


def _raise(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _pass(number: int, frame: FrameType | None) -> None:
    """A handler, so that Python notes the signal."""


def _stop() -> None:
    """Stops the process as Ctrl-Z does where nothing handles it. Calls C, because Python lets only the main thread,
    which may be busy, change how signals are handled."""
    c = ctypes.CDLL(None).signal
    c.restype, c.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    ours = c(signal.SIGTSTP, None)  # None: the default
    signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)  # goes on here afterwards
    c(signal.SIGTSTP, ours)
