"""Errors for users, and the two signals that builders give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from errno import ENOMEM


class BrickError(ValueError):
    """An error for the user: one line that says what is wrong and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(str(message).split()))


class ModelError(BrickError):
    """The model cannot be read or makes no sense."""


class InputError(BrickError):
    """The arrays given do not fit the model's inputs."""


class Defect(BrickError):
    """What went wrong is a defect of brickrt, not of the model: the last resort, which no model should ever reach."""


class Interrupted(Exception):
    """A computation was left on purpose, before its end."""


class NeedValue(Exception):
    """The values, not only the types, of these tensors are needed to build a node."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        super().__init__(f"values needed: {', '.join(sorted(self.names))}")


class Unsupported(Exception):
    """A node has no form in brick operators and runs whole on the host."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is not enough memory."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == ENOMEM)


def described(error: BaseException) -> str:
    """An error's kind and message in one line; memory that ran out in plain words."""
    if out_of_memory(error):
        return f"memory ran out ({error})" if str(error) else "memory ran out"
    return f"{type(error).__name__}: {error}"


_CALLERS = "brickrt_callers_own"
"""The attribute that marks exceptions which a function of the caller raised."""


@contextmanager
def callers_own() -> Iterator[None]:
    """Marks what a function of the caller raises: it goes through every `last_resort` as it is."""
    try:
        yield
    except Exception as e:
        setattr(e, _CALLERS, True)
        raise


@contextmanager
def last_resort(doing: Callable[[], str]) -> Iterator[None]:
    """Lets no other error than BrickError out: memory that runs out is said to, anything else is a Defect.

    `doing` says what was under way, and is asked only when that fails. The original error is the cause.
    """
    try:
        yield
    except (BrickError, Interrupted):
        raise
    except Exception as e:
        if out_of_memory(e):
            raise BrickError(f"{doing()}: {described(e)}: use smaller inputs, or a machine with more memory") from e
        if getattr(e, _CALLERS, False):
            raise
        raise Defect(f"{doing()}: {described(e)}: this is a defect of brickrt, please report it") from e
