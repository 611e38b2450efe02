"""What has taken the terminal, and how it is restored when the process stops or ends without unwinding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_RESTORERS: list[Callable[[], object]] = []


@contextmanager
def restored_by(restore: Callable[[], object]) -> Iterator[None]:
    """While this lasts, `restore_terminal` calls `restore`, from any thread; so does an error."""
    _RESTORERS.append(restore)
    try:
        yield
    except BaseException:
        with suppress(OSError, ValueError):
            restore()
        raise
    finally:
        _RESTORERS.remove(restore)


def restore_terminal() -> None:
    """The terminal as others want it: its first screen, its cursor, whole lines."""
    for restore in reversed(_RESTORERS):
        with suppress(OSError, ValueError):  # the terminal may be gone
            restore()
