"""Frames of the dashboard: they fit any screen, and say what they should."""

from __future__ import annotations

import pytest
from rich.segment import Segment

from brickrt.dashboard.live.frames import VIEWS, frame
from brickrt.dashboard.live.lines import plain
from brickrt.dashboard.live.run_state import RunState
from tests.dashboard.live.half_runs import frame_state, half

SIZES = [(80, 24), (200, 50), (40, 10), (300, 100), (20, 5)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_every_frame_fills_the_screen(run, view, size):
    run_state = half(run)
    for paused in (False, True):
        lines = frame(frame_state(run_state), *size, view, paused, "saved 名前.txt")
        assert len(lines) == size[1]
        assert {Segment.get_line_length(spans) for spans in lines} == {size[0]}


def test_the_overview_says_it_all(run):
    run_state = half(run)
    text = "\n".join(plain(one) for one in frame(frame_state(run_state), 80, 24))
    for words in ("model", "run 1/3", "all runs", "this run", "tasks/s", "worker 0", "worker 1", "to do", "running"):
        assert words in text
    for words in ("done", "complete first", "waits", "revisits", "recomputed", "live", "arena", "peak", "projected"):
        assert words in text
    for words in (
        "layers",
        "strategy",
        "brick",
        "share",
        "mean ms",
        "GF/s",
        "GB/s",
        "first",
        "q quit",
        "p pause",
        "reuse dist.",
        "beyond l2",
    ):
        assert words in text


def test_host_nodes_show_while_they_run():
    run_state = RunState()
    run_state.hosted("slow node", 5, 0)
    assert "slow node" in plain(frame(frame_state(run_state), 80, 24)[3])
    run_state.hosted("slow node", 5, 9)
    assert "slow node" not in "".join(map(plain, frame(frame_state(run_state), 80, 24)))
