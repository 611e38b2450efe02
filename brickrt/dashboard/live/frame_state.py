"""What one frame of the dashboard shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from brickrt.dashboard.live.run_state import Moment, SubgraphRow


@dataclass(frozen=True)
class TrafficComparison:
    """Modelled figures of the plan and of the same network layer by layer; bytes that move beyond each level."""

    reuse_bytes: float
    layerwise_reuse_bytes: float
    level_bytes: dict[str, int]
    layerwise_bytes: dict[str, int]


@dataclass(frozen=True)
class FrameState:
    """The state of all runs; `run` of `runs` is under way, counted from 0."""

    title: str
    run: int
    runs: int
    seconds: float
    moment: Moment | None
    rows: Sequence[SubgraphRow] = ()
    held_bytes: int = 0
    projected_bytes: int = 0
    locality: TrafficComparison | None = None
    host: str = ""
    latency_ms: Sequence[float] = field(default_factory=tuple)
