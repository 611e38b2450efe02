"""What has taken the terminal, and how it is given back when the process stops or ends without unwinding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_HELD: list[Callable[[], object]] = []


@contextmanager
def held(give_back: Callable[[], object]) -> Iterator[None]:
    """While this lasts, `give_back_terminal` calls `give_back`, from any thread; so does an error."""
    _HELD.append(give_back)
    try:
        yield
    except BaseException:
        with suppress(OSError, ValueError):
            give_back()
        raise
    finally:
        _HELD.remove(give_back)


def give_back_terminal() -> None:
    """The terminal as others want it: its first screen, its cursor, whole lines."""
    for give_back in reversed(_HELD):
        with suppress(OSError, ValueError):  # the terminal may be gone
            give_back()
