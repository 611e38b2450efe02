"""The figures that `Runtime.stats` gives of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from html import escape
from typing import Any, TypeVar


@dataclass(frozen=True, repr=False)
class Stats:
    """Sums over the task graphs of one `execute`.

    `tasks` that ran; of these `complete_first` were the first that their worker looked at; for `revisits` it passed
    over tasks that were not ready, and before `waits` it found none that was. `recomputed` counts elements of
    intermediates computed more than once (padded bricks only). `peak_bytes` is the memory held while it ran: constants
    as the engine keeps them, arena, scratch, tables, inputs and outputs. `run_ms` is the time inside the engine,
    `host_ms` that of nodes on the host, `compile_ms` that of specializing, planning and compiling, 0 where all of it
    was cached. `level_bytes` are the modelled bytes that move below each memory level, by its name; `host_nodes` the
    milliseconds of each ONNX node that ran whole on the host.
    """

    tasks: int = 0
    complete_first: int = 0
    waits: int = 0
    revisits: int = 0
    recomputed: int = 0
    peak_bytes: int = 0
    run_ms: float = 0.0
    host_ms: float = 0.0
    compile_ms: float = 0.0
    level_bytes: dict[str, int] = field(default_factory=dict)
    host_nodes: dict[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "\n".join(f"{name:18} {value}" for name, value in self._told())

    def _repr_html_(self) -> str:
        """The figures as a table, in notebooks."""
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in self._told())
        return f"<table>{rows}</table>"

    def _told(self) -> Iterator[tuple[str, str]]:
        """The lines that a person reads: name and value."""
        yield "time", f"{self.run_ms:.3f} ms in the engine, {self.host_ms:.3f} ms on the host"
        yield "compiling", f"{self.compile_ms:.1f} ms"
        yield "tasks", f"{self.tasks}: {self.complete_first} complete first"
        yield "waits, revisits", f"{self.waits}, {self.revisits}"
        yield "recomputed", f"{self.recomputed} elements"
        yield "memory", f"{self.peak_bytes / 2**20:.1f} MiB peak"
        for level, nbytes in self.level_bytes.items():
            yield f"beyond {level}", f"{nbytes / 2**20:.1f} MiB, modelled"
        for name, ms in self.host_nodes.items():
            yield "on the host", f"{name}, {ms:.3f} ms"

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON has them."""
        return asdict(self)

    def __add__(self, other: Stats) -> Stats:
        """Figures of two parts that ran one after the other; memory is held by both."""
        sums = {k: getattr(self, k) + getattr(other, k) for k in _NUMBERS}
        return Stats(
            **sums,
            level_bytes=_merged(self.level_bytes, other.level_bytes),
            host_nodes=_merged(self.host_nodes, other.host_nodes),
        )

    @staticmethod
    def total(parts: Iterable[Stats]) -> Stats:
        """The sum of the figures of parts that ran one after the other."""
        acc = Stats()
        for part in parts:
            acc = acc + part
        return acc


Number = TypeVar("Number", int, float)


def _merged(some: Mapping[str, Number], more: Mapping[str, Number]) -> dict[str, Number]:
    return {name: some.get(name, 0) + more.get(name, 0) for name in (*some, *more)}


_NUMBERS = tuple(f.name for f in fields(Stats) if f.name not in ("level_bytes", "host_nodes"))
