"""Errors for users, and the two signals that builders give."""

from __future__ import annotations

from collections.abc import Iterable


class BrickError(ValueError):
    """An error for the user: one line that says what is wrong and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(str(message).split()))


class ModelError(BrickError):
    """The model cannot be read or makes no sense."""


class InputError(BrickError):
    """The arrays given do not fit the model's inputs."""


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
