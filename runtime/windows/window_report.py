"""What a run on blended windows did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from brickrt.runtime.stream.stream_report import BoundedReport
from brickrt.runtime.windows.window_options import WindowOptions


@dataclass(frozen=True, kw_only=True)
class WindowReport(BoundedReport):
    """What a run on blended windows did: `windows` ran of `all_windows`, others an earlier run had finished."""

    options: WindowOptions
    windows: int
    all_windows: int

    @property
    def remark(self) -> str:
        """What the result is: not the exact one."""
        return self.options.remark()

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON has it: memory in bytes, times in seconds."""
        return window_dict(self.options, self.all_windows) | {"windows_run": self.windows} | super().to_dict()


def window_dict(options: WindowOptions, windows: int) -> dict[str, Any]:
    """What the result of so many windows is, as JSON has it."""
    cut = {"result": options.remark(), "exact": False, "window": list(options.window)}
    return cut | {"overlap": options.overlap, "blend": options.blend, "windows": windows}
