"""Ctrl-C while the main thread runs compiled code, and does not hear signals."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from brickrt.runtime.engine import Cancelled

DONE = 0  # no signal has this number


@contextmanager
def interruptible(cancel: Callable[[], None]) -> Iterator[None]:
    """Calls `cancel` from another thread when Ctrl-C is pressed; what is cancelled ends in KeyboardInterrupt here."""
    if threading.current_thread() is not threading.main_thread():  # signals are not ours
        yield
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    listener = threading.Thread(target=_listen, args=(read, cancel), name="brickrt-interrupts", daemon=True)
    listener.start()
    try:
        yield
    except Cancelled:
        raise KeyboardInterrupt from None
    finally:
        signal.set_wakeup_fd(before)
        os.write(write, bytes([DONE]))
        listener.join()
        os.close(read)
        os.close(write)


def _listen(read: int, cancel: Callable[[], None]) -> None:
    """Python notes each signal's number in the pipe as soon as it comes."""
    while DONE not in (numbers := os.read(read, 64)):
        if signal.SIGINT in numbers:
            cancel()
