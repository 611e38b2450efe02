"""Which kernel classes compute an operator: every device has a registry of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from brickrt.ops.base import Op

Chooser = TypeVar("Chooser", bound=Callable)


class Registry(Generic[Chooser]):
    """Functions that choose a kernel class, by operator class."""

    def __init__(self, device: str) -> None:
        self._device, self._known = device, dict[type[Op], Chooser]()

    def register(self, *ops: type[Op]) -> Callable[[Chooser], Chooser]:
        """Decorates the chooser for these operator classes."""

        def register(choose: Chooser) -> Chooser:
            self._known.update(dict.fromkeys(ops, choose))
            return choose

        return register

    def chooser(self, op: Op) -> Chooser:
        """The function that chooses a kernel class for `op`. Raises LookupError where no kernel is known."""
        if type(op) not in self._known:
            raise LookupError(f"no {self._device} kernel for {op.name}")
        return self._known[type(op)]
