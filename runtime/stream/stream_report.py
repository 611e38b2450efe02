"""What a run in bounded memory is asked for, tells on its way, and did."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.ops.types import Shape
from brickrt.plan.stream.stream_memory import COMPILING_BYTES, StreamMemory
from brickrt.plan.stream.stream_plan import StreamPlan


@dataclass(frozen=True)
class StreamCut:
    """How the network was cut: rows of a band, strips along each axis behind the rows, and spilled tensors; and the
    bytes that transformed weights may take beyond the weights, as many as are fastest where it is None."""

    rows: int
    strips: tuple[int, ...]
    spilled: tuple[str, ...] = ()
    transformed: int | None = None

    def __str__(self) -> str:
        return json.dumps([self.rows, self.strips, self.spilled, self.transformed])

    @classmethod
    def parse(cls, text: str) -> StreamCut:
        """The cut that `str` wrote. Raises ValueError for other text."""
        try:
            rows, strips, spilled, transformed = json.loads(text)
            most = None if transformed is None else int(transformed)
            return cls(int(rows), tuple(map(int, strips)), tuple(map(str, spilled)), most)
        except TypeError as e:
            raise ValueError(f"{text!r} is no cut") from e


@dataclass(frozen=True)
class StreamOptions:
    """`max_memory` bytes that the process may have resident, 80 % of what is free where it is None. `stored` is the
    type of the files' elements, by default that of the outputs, which are multiplied with `scale` before. With
    `resume`, a run that was ended goes on, in the bands of its `cut`. With `spill` "auto", tensors that several passes
    need go through files where that takes less time, in the folder `scratch`, by default beside the output; so many
    processes are `sharing` its disk. For `had_before` see `plan_stream`."""

    max_memory: int | None = None
    stored: str | None = None
    scale: float | None = None
    resume: bool = False
    cut: StreamCut | None = None
    spill: str = "auto"
    scratch: str | Path | None = None
    sharing: int = 1
    had_before: int | None = None


def check_options(options: StreamOptions) -> None:
    """Refuses numbers and types that make no sense."""
    if options.max_memory is not None and not (_is_number(options.max_memory, Integral) and options.max_memory > 0):
        raise BrickError(f"max_memory {options.max_memory!r} is impossible: give a number of bytes, such as 2**30")
    if options.scale is not None and not (_is_number(options.scale, Real) and math.isfinite(options.scale)):
        raise BrickError(f"scale {options.scale!r} is impossible: give a finite number")
    if not isinstance(options.resume, bool):
        raise BrickError(f"resume {options.resume!r} is impossible: give True or False")
    if options.spill not in ("auto", "never"):
        raise BrickError(f"spill {options.spill!r} is impossible: use auto or never")
    if options.scratch is not None and not isinstance(options.scratch, str | Path):
        raise BrickError(f"scratch is a {type(options.scratch).__name__}: give the path of a folder")
    if options.scratch is not None and not Path(options.scratch).is_dir():
        raise BrickError(f"{options.scratch}: there is no such folder for scratch: create it, or give another")
    if options.stored is not None:
        try:
            np.dtype(options.stored)
        except (TypeError, ValueError):
            raise BrickError(f"{options.stored!r} is no type: use uint8, uint16 or float32") from None


def _is_number(value: object, kind: type) -> bool:
    """Whether it is a number of Python's or NumPy's, and no truth value."""
    return isinstance(value, kind) and not isinstance(value, bool)


@dataclass(frozen=True)
class Spilling:
    """What was known of the disk when it was chosen what is spilled: the folder, bytes a second, free bytes; and `why`
    nothing is, where that is not for the time."""

    folder: str
    write: float
    read: float
    free: int
    why: str = ""


@dataclass(frozen=True)
class StreamProgress:
    """How far a run is: in rows of its sweep, in bands of all, in bytes of the files. `left_s` are seconds, None until
    a band has run."""

    sweep: int
    sweeps: int
    rows: int
    all_rows: int
    bands: int
    all_bands: int
    bytes_read: int
    bytes_written: int
    left_s: float | None


Watch = Callable[[StreamProgress], None]


@dataclass(frozen=True, kw_only=True)
class BoundedReport:
    """What a run in bounded memory took. `peak` are the most bytes that were resident, `memory` those that were
    projected and `limit` those that were allowed. `bytes_read` and `bytes_written` are those of the files' elements,
    `plan_s`, `compile_s` and `run_s` seconds, `outputs` the files by output. `nonfinite` are
    elements of outputs that this run made and are NaN or infinite; None where nobody counted them: on a cluster."""

    memory: StreamMemory
    limit: int
    peak: int
    plan_s: float
    compile_s: float
    run_s: float
    bytes_read: int = 0
    bytes_written: int = 0
    outputs: dict[str, str] = field(default_factory=dict)
    nonfinite: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON has it: memory in bytes, times in seconds."""
        counted = {} if self.nonfinite is None else {"nonfinite": self.nonfinite}
        figures = {
            "peak_bytes": self.peak,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "plan_s": self.plan_s,
            "compile_s": self.compile_s,
            "run_s": self.run_s,
            "outputs": dict(self.outputs),
        }
        return memory_dict(self.memory, self.limit) | counted | figures


@dataclass(frozen=True, kw_only=True)
class StreamReport(BoundedReport):
    """What a run in bands did: `bands` ran of `all_bands`, others an earlier run had finished."""

    plan: StreamPlan = field(repr=False)
    bands: int
    all_bands: int
    spilling: Spilling | None = None
    transformed: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON has it: memory in bytes, times in seconds."""
        cut = plan_dict(self.plan, self.memory, self.limit, self.spilling, self.transformed)
        return cut | super().to_dict() | {"bands_run": self.bands}


def tall(plan: StreamPlan) -> int:
    """Rows of the tallest input or output that is swept."""
    graph, swept = plan.plan.graph, plan.swept
    io = [name for name in (*graph.inputs, *graph.outputs) if name in swept.level]
    return max((graph.types[name].shape[swept.axes.of(name)] for name in io), default=0)


def plan_dict(
    plan: StreamPlan,
    memory: StreamMemory,
    limit: int,
    spilling: Spilling | None = None,
    transformed: int | None = None,
) -> dict[str, Any]:
    """How a network is cut, the memory that it takes by part, in bytes, what is spilled, and what transformed weights
    may take beyond the weights (None: as much as is fastest), as JSON has it."""
    graph = plan.plan.graph
    return {
        "passes": plan.swept.passes,
        "sweeps": sum(one.times for one in plan.sweeps),
        "axis": next((plan.swept.axes.of(n) for n in graph.inputs if n in plan.swept.level), None),
        "rows": tall(plan),
        "band_rows": plan.rows,
        "strips": list(plan.strips),
        "bands": sum(one.times * one.all_bands for one in plan.sweeps),
        "flops": graph.flops(graph.nodes),
        "attention": [{"positions": one.positions, "flops": one.flops(graph)} for one in plan.attentions],
        **memory_dict(memory, limit),
        "spilled": [_spilled(plan, name, shape) for name, shape in plan.spill_shapes().items()],
        "disk": asdict(spilling) if spilling else None,
        "transformed_bytes": transformed,
    }


def memory_dict(memory: StreamMemory, limit: int) -> dict[str, Any]:
    """The memory that a run takes by part, and what it may take, in bytes, as JSON has it."""
    parts = asdict(memory) | {"compiling": COMPILING_BYTES}
    held = parts.pop("held")
    return {"limit_bytes": limit, "projected_bytes": memory.total, "memory": parts, "tables_held": held}


def _spilled(plan: StreamPlan, name: str, shape: Shape) -> dict[str, Any]:
    """A spilled tensor: its bytes, and the passes, counted from 1, that write it and read it."""
    written, *read = dict.fromkeys(plan.sweeps[number].number + 1 for number in plan.users(name))
    return {"tensor": name, "bytes": math.prod(shape), "written_in": written, "read_in": read}
