"""How a terminal that was taken is restored, also when the process stops or ends without unwinding the stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_RESTORERS: list[Callable[[], object]] = []


@contextmanager
def restored_by(restore: Callable[[], object]) -> Iterator[None]:
    """While this lasts, `restore_terminal` calls `restore`, from any thread; an error inside calls it too."""
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
    """Gives the terminal back as it was: its first screen, its cursor, input in whole lines."""
    for restore in reversed(_RESTORERS):
        with suppress(OSError, ValueError):  # the terminal may be gone
            restore()
