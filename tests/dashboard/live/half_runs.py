"""Runs that are half done, as a dashboard sees them."""

from __future__ import annotations

import numpy as np

from brickrt.dashboard.live.frame_state import FrameState, TrafficComparison
from brickrt.dashboard.live.run_state import RunState
from brickrt.dashboard.live.watched_runs import WatchedRuns
from brickrt.dashboard.recording import GraphRun
from brickrt.runtime import events


def rows_of(run: GraphRun, workers: int = 2) -> list[np.ndarray]:
    """The workers' buffers after a run."""
    e, filled = run.events, events.buffers(len(run.tasks), workers)
    for worker, rows in enumerate(filled):
        mine = np.arange(len(e)) % workers == worker
        rows[: mine.sum()] = np.stack([e.task, e.start, e.end, e.waits, e.revisits], 1)[mine]
    return filled


def half(run: GraphRun) -> RunState:
    """The state of a run of which half the rows are there, and one task is under way."""
    run_state, filled = RunState(), rows_of(run)
    for rows in filled:
        n = events.used(rows)
        rows[max(1, n // 2) :] = 0
    filled[0][events.used(filled[0]) - 1, 2] = 0
    run_state.began(run.tasks, filled)
    return run_state


def frame_state(run_state: RunState) -> FrameState:
    """A frame of the first of three runs, with made-up memory and traffic."""
    traffic = TrafficComparison(2e4, 3e4, {"l2": 1 << 20, "l3": 1 << 19}, {"l2": 1 << 21, "l3": 1 << 20})
    return WatchedRuns("model", 3, run_state, traffic, peak_bytes=1 << 20, projected_bytes=2 << 20).frame_state()
