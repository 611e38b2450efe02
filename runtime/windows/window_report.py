"""What a run on blended windows did."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from brickrt.plan.stream.stream_memory import COMPILING, StreamMemory
from brickrt.runtime.windows.window_options import WindowOptions


@dataclass(frozen=True)
class WindowReport:
    """What a run on blended windows did; `remark` says that the result is not the exact one. `peak` are the most bytes
    that were resident, `memory` those that were projected and `limit` those that were allowed; `windows` ran of
    `all_windows`: others an earlier run had finished. `bytes_read` and `bytes_written` are those of the files'
    elements, `plan_s`, `compile_s` and `run_s` seconds, `outputs` the files by output."""

    options: WindowOptions
    memory: StreamMemory
    limit: int
    peak: int
    windows: int
    all_windows: int
    plan_s: float
    compile_s: float
    run_s: float
    bytes_read: int = 0
    bytes_written: int = 0
    outputs: dict[str, str] = field(default_factory=dict)

    @property
    def remark(self) -> str:
        """What the result is: not the exact one."""
        return self.options.remark()

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON has it: memory in bytes, times in seconds."""
        return {
            "result": self.remark,
            "exact": False,
            "window": list(self.options.window),
            "overlap": self.options.overlap,
            "blend": self.options.blend,
            "windows": self.all_windows,
            "windows_run": self.windows,
            "limit_bytes": self.limit,
            "projected_bytes": self.memory.total,
            "memory": asdict(self.memory) | {"compiling": COMPILING},
            "peak_bytes": self.peak,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "plan_s": self.plan_s,
            "compile_s": self.compile_s,
            "run_s": self.run_s,
            "outputs": dict(self.outputs),
        }
