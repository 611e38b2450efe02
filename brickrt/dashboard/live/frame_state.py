"""What one frame of the dashboard shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from brickrt.dashboard.figures import SubgraphFigures
from brickrt.dashboard.live.run_state import Moment


@dataclass(frozen=True)
class TrafficComparison:
    """Modelled figures of a plan and of the same network layer by layer: the mean reuse distance, and the bytes that
    move beyond each level of memory."""

    reuse_bytes: float
    layerwise_reuse_bytes: float
    level_bytes: dict[str, int]
    layerwise_bytes: dict[str, int]


@dataclass(frozen=True)
class FrameState:
    """The state of all runs; `run` of `runs` is under way, counted from 0. `host` names the node that the host computes
    now."""

    title: str
    run: int
    runs: int
    seconds: float
    moment: Moment | None
    rows: Sequence[SubgraphFigures] = ()
    peak_bytes: int = 0
    projected_bytes: int = 0
    traffic: TrafficComparison | None = None
    host: str = ""
    latency_ms: Sequence[float] = ()
