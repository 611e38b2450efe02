"""What a run ends with: its counts, or that it was cancelled."""

from __future__ import annotations

from typing import NamedTuple

from brickrt.graph.errors import Interrupted


class Cancelled(Interrupted):
    """A run was ended early by `Program.cancel`; its outputs are not complete."""


class Counts(NamedTuple):
    """What the workers counted in one run: tasks run; of these, those that were the first their worker looked at; tasks
    before which it found none ready, and waited; and tasks for which it passed over others that were not ready."""

    tasks: int
    complete_first: int
    waits: int
    revisits: int
