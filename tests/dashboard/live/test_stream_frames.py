"""Frames of runs in bounded memory: they fit any screen, and say what they should."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.segment import Segment

from brickrt.dashboard.live.lines import plain
from brickrt.dashboard.live.stream_frames import BARS, STREAM_VIEWS, memory_lines, pass_lines, stream_frame, stream_line
from brickrt.dashboard.live.stream_watch import MemorySamples, StreamState, StreamWatch
from brickrt.runtime.stream.stream_report import StreamProgress

MIB = 2**20
TOLD = StreamProgress(1, 5, 435, 2048, 55, 128, 120 * MIB, 40 * MIB, 62.0)
STATE = StreamState(
    title="名前.onnx → out.zarr",
    parts="bands",
    passes=tuple(f"pass {k + 1}" for k in range(5)),
    projected=500 * MIB,
    limit=800 * MIB,
    threads=2,
    seconds=12.0,
    told=TOLD,
    pass_s={0: 5.2, 1: 3.1},
    memory=[(k / 10, (100 + 3 * k) * MIB) for k in range(120)],
    busy=1.9,
    reading=90 * MIB,
    writing=30 * MIB,
)


@pytest.mark.parametrize("size", [(80, 24), (200, 50), (40, 10), (300, 100), (20, 5)], ids=str)
@pytest.mark.parametrize("view", STREAM_VIEWS)
@pytest.mark.parametrize("told", [None, TOLD], ids=["before", "under way"])
def test_every_frame_fills_the_screen(view, size, told):
    for paused in (False, True):
        lines = stream_frame(replace(STATE, told=told), *size, view, paused, "saved 名前.txt")
        assert len(lines) == size[1]
        assert {Segment.get_line_length(spans) for spans in lines} == {size[0]}


def test_the_overview_says_it_all():
    text = "\n".join(plain(one) for one in stream_frame(STATE, 80, 24))
    for words in (
        "00:12.0",
        "55/128 bands",
        "1 min 2 s left",
        "row 435/2048",
        "pass 1",
        "pass 5",
        "5.2 s",
        "1.9 of 2 busy, 95 %",
        "120.0 MiB   90.0 MiB/s",
        "40.0 MiB   30.0 MiB/s",
        "457.0 MiB now, 457.0 MiB peak, 500.0 MiB projected, 800.0 MiB allowed",
        "allowed   ┄",
        "projected ┄",
        "p pause",
        "q end",
    ):
        assert words in text, text


def test_passes_that_are_done_are_full_and_those_to_come_are_empty():
    rows = [plain(one) for one in pass_lines(STATE, 60, 10)]
    assert len(rows) == 5 and "·" not in rows[0] and "█" not in "".join(rows[2:])
    assert rows[1].count("█") == round(435 / 2048 * (rows[1].count("█") + rows[1].count("·")))


def test_of_many_passes_those_about_the_one_under_way_show():
    state = replace(STATE, passes=tuple(f"pass {k + 1}" for k in range(40)), told=replace(TOLD, sweep=20), pass_s={})
    names = [plain(one).split("█")[0].split("·")[0].strip() for one in pass_lines(state, 60, 5)]
    assert names == [f"pass {k}" for k in (19, 20, 21, 22, 23)]


def test_the_chart_rises_with_memory_up_to_the_limit():
    rows = [plain(one)[10:] for one in memory_lines(STATE, 80, 8)]
    heights = [sum(BARS.find(row[k]) + 1 for row in rows) for k in range(len(rows[0]))]
    assert heights == sorted(heights) and heights[-1] == round(64 * 457 / 800) and heights[0] > 0
    full = replace(STATE, memory=[(0.0, 900 * MIB)])
    assert all(set(plain(one)[10:]) == {"█"} for one in memory_lines(full, 80, 8))


def test_one_line_where_there_is_no_screen():
    assert stream_line(STATE) == "bands 55 of 128, 43 %, 12.0 s"
    assert stream_line(replace(STATE, told=None, step="compile kernels 3/9")) == "compile kernels 3/9, 12.0 s"


def test_no_peak_is_lost_where_samples_become_one():
    samples = MemorySamples(most=16)
    for k in range(1000):
        samples.add(float(k), 777 if k == 400 else k % 5)
    assert len(samples.kept) <= 17 and max(nbytes for _, nbytes in samples.kept) == 777
    assert [second for second, _ in samples.kept] == sorted(second for second, _ in samples.kept)


def test_a_watch_takes_note_of_passes_memory_and_speeds(monkeypatch):
    clock = iter([0.0, 1.0, 1.0, 2.0, 3.0, 3.5, 5.0, 5.0])
    watch = StreamWatch("run", 2)
    monkeypatch.setattr(watch, "_now", lambda: next(clock))
    watch.planned(["pass 1", "pass 2"], 300 * MIB, 400 * MIB)
    watch.step("plan", 0, 1)
    watch.step("compile kernels", 8, 9)
    watch.look()
    watch.told(replace(TOLD, sweep=0, bytes_read=0))
    watch.told(replace(TOLD, sweep=1))
    watch.look()
    assert watch.pass_times() == [("pass 1", 1.0, 1.0), ("pass 2", 2.0, 1.0)]
    state = watch.frame_state()
    assert state.pass_s == {0: 1.0, 1: 1.0} and state.step == "compile kernels 8/9" and state.seconds == 5.0
    assert len(state.memory) == 2 and state.peak > MIB and state.limit == 400 * MIB


def test_a_watch_samples_while_it_lasts():
    with StreamWatch("run", 1) as watch:
        while len(watch.samples.kept) < 3:
            pass
    kept = len(watch.samples.kept)
    watch.look()
    assert len(watch.samples.kept) == kept + 1
