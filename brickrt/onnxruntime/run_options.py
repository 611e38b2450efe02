"""Options of a run, and how another thread ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from brickrt.onnxruntime.entries import entry_of
from brickrt.onnxruntime.errors import Fail


@dataclass(slots=True, eq=False)
class _RunSettings:
    """What is accepted, and has no effect."""

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    entries: dict[str, str] = field(default_factory=dict)


class RunOptions(_RunSettings):
    """How a run is done. `terminate`, which any thread may set, ends the runs that have these options; it stays set
    until the program takes it back. All else is accepted and has no effect."""

    __slots__ = ("_ends", "_lock", "_terminate")

    def __init__(self) -> None:
        super().__init__()
        self._terminate, self._lock = False, threading.Lock()
        self._ends: list[Callable[[], None]] = []

    @property
    def terminate(self) -> bool:
        """Whether runs with these options are to end."""
        return self._terminate

    @terminate.setter
    def terminate(self, value: bool) -> None:
        """Ends the runs under way with these options, from any thread, and those that begin from now on; or no more."""
        with self._lock:
            self._terminate = bool(value)
            ends = list(self._ends) if value else []
        for end in ends:
            end()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry, which has no effect."""
        self.entries[str(key)] = str(value)

    def get_run_config_entry(self, key: str) -> str:
        """An entry that was added. Raises BrickError where there is none."""
        return entry_of(self.entries, key)

    def add_active_adapter(self, adapter: Any) -> None:
        """Raises Fail: adapters are files of ONNX Runtime's own."""
        raise Fail("adapters do not run here: export the model with the adapter's weights in it")

    def calling(self, end: Callable[[], None]) -> None:
        """Has `end` called when `terminate` is set."""
        with self._lock:
            self._ends.append(end)

    def left(self, end: Callable[[], None]) -> None:
        """Takes `calling` back."""
        with self._lock:
            self._ends.remove(end)


@contextmanager
def ended_by(options: Any, end: Callable[[], None]) -> Iterator[None]:
    """Inside, `end` is called from the thread that sets `terminate` of the options, brickrt's; of others it is looked
    at before and afterwards alone. Raises Fail where it is set, as ONNX Runtime does."""
    check_terminated(options)
    watched = options if isinstance(options, RunOptions) else None
    if watched is not None:
        watched.calling(end)
    try:
        yield
    finally:
        if watched is not None:
            watched.left(end)
    check_terminated(options)


def check_terminated(options: Any) -> None:
    """Raises Fail where a run with these options is to end."""
    if getattr(options, "terminate", False):
        raise Fail("the run ends: the terminate flag of its RunOptions is set to true")
