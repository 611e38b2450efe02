"""Ctrl-C while the main thread runs compiled code, where Python handles no signals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from brickrt.cli.terminal.signals import Signals, current, heard
from brickrt.runtime.program_protocol import Cancelled


@contextmanager
def interruptible(cancel: Callable[[], None]) -> Iterator[None]:
    """Calls `cancel` from another thread when Ctrl-C is pressed; what is cancelled ends in KeyboardInterrupt here."""
    active = current()
    signals = active or Signals()
    signals.cancels.append(cancel)
    try:
        with nullcontext() if active else heard(signals):
            yield
    except Cancelled:
        raise KeyboardInterrupt from None
    finally:
        signals.cancels.remove(cancel)
