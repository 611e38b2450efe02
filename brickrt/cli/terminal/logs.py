"""What the library logs, as lines on standard error."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from brickrt.cli.terminal.text import note


class NoteHandler(logging.Handler):
    """Writes each record as a line of the command."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the record."""
        note(record.getMessage())


@contextmanager
def shown_logs(shown: bool) -> Iterator[None]:
    """While this lasts, what the logger `brickrt` is told of level INFO is shown, if it is to be `shown`."""
    logger, handler = logging.getLogger("brickrt"), NoteHandler()
    if not shown:
        yield
        return
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
