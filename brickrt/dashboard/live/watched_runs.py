"""The runs that a dashboard shows: how far they are, and what is known of their plan."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from brickrt.dashboard.live.frame_state import FrameState, TrafficComparison
from brickrt.dashboard.live.run_state import RunState
from brickrt.runtime.execution.report import Report


@dataclass
class WatchedRuns:
    """Repeated runs of one model. `latency_ms` grows run by run; `quit` is set when no more are wanted."""

    title: str
    runs: int
    run_state: RunState = field(default_factory=RunState)
    traffic: TrafficComparison | None = None
    peak_bytes: int = 0
    projected_bytes: int = 0
    latency_ms: list[float] = field(default_factory=list)
    quit: bool = False
    began: float = field(default_factory=time.monotonic)

    def start(self) -> None:
        """Starts the clock that frames show."""
        self.began = time.monotonic()

    def compiled(self, report: Report, traffic: TrafficComparison | None) -> None:
        """Takes note of the memory of all stages in a report, and of their modelled traffic."""
        self.peak_bytes, self.projected_bytes = report.peak_bytes, report.projected_bytes
        self.traffic = traffic

    def stop(self) -> None:
        """Asks that no further run begins."""
        self.quit = True

    def frame_state(self) -> FrameState:
        """What a frame shows now."""
        moment = self.run_state.moment()
        return FrameState(
            title=self.title,
            run=len(self.latency_ms),
            runs=self.runs,
            seconds=time.monotonic() - self.began,
            moment=moment,
            rows=self.run_state.rows(moment.labels) if moment else (),
            peak_bytes=self.peak_bytes,
            projected_bytes=self.projected_bytes,
            traffic=self.traffic,
            host=self.run_state.host,
            latency_ms=tuple(self.latency_ms),
        )
