"""How a command ends that printed its result, and yet did not do all that it was asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Failure:
    """What is printed all the same, and the line that says what failed; the exit code is 1."""

    text: str
    why: str
