"""What a forked child must make anew: of its threads only the one that forked is left, and a lock that another thread
held at that moment is never released."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    """Something with locks or helper threads."""

    def after_fork(self) -> None:
        """Called in a child, before anything else runs in it: gives up what other threads held, or were."""
        ...


_ALL: WeakSet[Forked] = WeakSet()


def tell_children(thing: Forked) -> None:
    """From now on, for as long as it lives, `thing.after_fork` is called in every forked child."""
    _ALL.add(thing)


def _tell_all() -> None:
    for thing in tuple(_ALL):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell_all)
