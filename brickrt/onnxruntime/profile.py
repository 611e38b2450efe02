"""What a session with `enable_profiling` writes down: an event per run, and per subgraph or node on the host in it, as
programs read them from ONNX Runtime's file. `brickrt run --trace` has every task."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.onnxruntime.environment import CPU
from brickrt.runtime.events import TaskEvents
from brickrt.runtime.lowering.task_graph import TaskGraph


class Profile:
    """An observer of runs. Times are microseconds since it was made. `op_types` are those of the model's nodes, by
    name; a subgraph is called after its nodes, and has the type of the first."""

    def __init__(self, prefix: str) -> None:
        self.began_ns = time.monotonic_ns()
        self.op_types: dict[str, str] = {}
        self._prefix = prefix
        self._events: list[dict[str, Any]] = []
        self._written = ""

    def began(self, tasks: TaskGraph, rows: Sequence[np.ndarray]) -> None:
        """Nothing is written down yet."""

    def ended(self, tasks: TaskGraph, events: TaskEvents) -> None:
        """Writes down from when to when each subgraph ran."""
        of = tasks.task_subgraph[events.task]
        for number, subgraph in enumerate(tasks.plan.subgraphs):
            mine = of == number
            if mine.any():
                self._node(tasks.plan.ops(subgraph), int(events.start[mine].min()), int(events.end[mine].max()))

    def hosted(self, name: str, start: int, end: int) -> None:
        """Writes down a node that the host has computed."""
        if end:
            self._node([name], start, end)

    @contextmanager
    def session(self, name: str) -> Iterator[None]:
        """Writes down what a session does inside."""
        began = time.monotonic_ns()
        yield
        self._add("Session", name, began, time.monotonic_ns(), {})

    def write(self) -> str:
        """Writes the file, named after the prefix and the time, and gives its name; later runs are not written down.
        Raises BrickError where it cannot be written."""
        if self._written:
            return self._written
        path = Path(f"{self._prefix}_{datetime.now():%Y-%m-%d_%H-%M-%S}.json")
        try:
            path.write_text(json.dumps(self._events), "utf-8")
        except OSError as e:
            raise BrickError(f"{path}: cannot be written ({e.strerror}): set another profile_file_prefix") from e
        self._written, self._events = str(path), []
        return self._written

    def _node(self, names: Sequence[str], start: int, end: int) -> None:
        kind = self.op_types.get(names[0], "") if names else ""
        args = {"op_name": kind, "provider": CPU, "nodes": list(names)}
        self._add("Node", f"{'+'.join(names)}_kernel_time", start, end, args)

    def _add(self, category: str, name: str, start: int, end: int, args: dict[str, Any]) -> None:
        if self._written:
            return
        event = {"cat": category, "name": name, "ph": "X", "pid": os.getpid(), "tid": threading.get_native_id()}
        self._events.append(
            event | {"ts": (start - self.began_ns) // 1000, "dur": max(0, end - start) // 1000, "args": args}
        )


def profile_of(options: Any) -> Profile | None:
    """The profile that options ask for, brickrt's or ONNX Runtime's own; None where they do not."""
    if not getattr(options, "enable_profiling", False):
        return None
    return Profile(str(getattr(options, "profile_file_prefix", "onnxruntime_profile_")))


def noted(profile: Profile | None, name: str) -> AbstractContextManager[None]:
    """Writes down what a session does inside, where it is profiled."""
    return nullcontext() if profile is None else profile.session(name)
