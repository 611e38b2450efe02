"""The dashboard's frames, as lines for a screen of a given size. Pure: nothing here touches a terminal."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.segment import Segment

from brickrt.dashboard.live.frame_state import FrameState
from brickrt.dashboard.live.lines import Line, beside, cut, fit, line
from brickrt.dashboard.live.panels import brick_map, counters, lanes, progress, table
from brickrt.dashboard.live.run_state import COMPLETE, Moment
from brickrt.dashboard.units import count_text, size_text

VIEWS = ("overview", "subgraphs", "map", "memory")
HEAD = 3  # lines above the view, and one below
MAP_WIDTH = 0.45  # of the screen, in the overview

Shown = TypeVar("Shown")


@dataclass(frozen=True)
class DashboardFrames(Generic[Shown]):
    """How a dashboard shows its state: the names of its views, whole frames, and one line where there is no screen."""

    views: Sequence[str]
    frame: Callable[[Shown, int, int, str, bool, str], list[Line]]
    one_line: Callable[[Shown], str]


def frame(
    state: FrameState, width: int, height: int, view: str = "overview", paused: bool = False, note: str = ""
) -> list[Line]:
    """`height` lines, each `width` cells wide. `note` is said in the last one, instead of the keys."""
    lines = [*_head(state, width), *_body(state, width, max(1, height - HEAD - 1), view)]
    lines = lines[: height - 1] + [line()] * (height - 1 - len(lines))
    return [fit(spans, width) for spans in (*lines, key_line(VIEWS, view, paused, note, width))]


def one_line(state: FrameState) -> str:
    """Progress where there is no screen to draw on."""
    share = 100 * _done_share(state)
    return f"run {min(state.run + 1, state.runs)} of {state.runs}, {share:.0f} %, {state.seconds:.1f} s"


RUN_FRAMES = DashboardFrames(VIEWS, frame, one_line)


def _done_share(state: FrameState) -> float:
    """How much of all runs is done."""
    moment = state.moment
    part = moment.counts[COMPLETE] / max(1, sum(moment.counts)) if moment and state.run < state.runs else 0.0
    return (state.run + part) / max(1, state.runs)


def _head(state: FrameState, width: int) -> list[Line]:
    moment = state.moment
    clock = f"{int(state.seconds) // 60:02}:{state.seconds % 60:04.1f}"
    right = f"run {min(state.run + 1, state.runs)}/{state.runs}  {clock}"
    title = cut(state.title, max(1, width - len(right) - 1))
    done, total = (moment.counts[COMPLETE], sum(moment.counts)) if moment else (0, 0)
    rate = f"{count_text(done / moment.seconds)} tasks/s" if moment and done else ""
    tasks = f"{count_text(done)}/{count_text(total)}   {rate}"
    tail = max(len(tasks), 26)
    return [
        line((title, "bold"), " ", right),
        progress("all runs", _done_share(state), _latency(state).ljust(tail), width),
        progress("this run", done / total if total else 0.0, tasks.ljust(tail), width),
    ]


def _latency(state: FrameState) -> str:
    return f"median {statistics.median(state.latency_ms):.2f} ms" if state.latency_ms else ""


def key_line(views: Sequence[str], view: str, paused: bool, note: str, width: int, end: str = "q quit") -> Line:
    """The last line: views and keys, or a note. Where not all fits, only the view that is shown is named."""
    pause = (" p go on", "yellow") if paused else (" p pause", "dim")
    right = line("  ", note) if note else line((" tab view ", "dim"), pause, (f"  s save  {end}", "dim"))
    left = line(*((f" {name} ", "reverse" if name == view else "") for name in views))
    if Segment.get_line_length([*left, *right]) > width:
        left = line((f" {view} ", "reverse"))
    return [*left, *right]


def _body(state: FrameState, width: int, height: int, view: str) -> list[Line]:
    moment = state.moment
    if moment is None:
        known = "nothing to compute" if state.run else "waiting for the first task …"  # outputs may be constants
        return [line(f"on the host: {state.host}" if state.host else known)]
    if view == "subgraphs":
        return table(state.rows, width, height, by_time=False)
    if view == "map":
        return brick_map(moment, width, height)
    if view == "memory":
        return _memory(state, moment, width)
    return _overview(state, moment, width, height)


def _overview(state: FrameState, moment: Moment, width: int, height: int) -> list[Line]:
    top = lanes(moment, max(1, height // 5))
    if state.host:
        top.append(line(("host      ▸ ", "magenta"), state.host))
    figures = counters(state, moment)
    left = max(16, int(width * MAP_WIDTH))
    rows = max(len(figures), (height - len(top)) // 2)
    upper = beside(brick_map(moment, left, rows), figures, left)
    return [*top, *upper, *table(state.rows, width, height - len(top) - len(upper), by_time=True)]


def _memory(state: FrameState, moment: Moment, width: int) -> list[Line]:
    bars = {
        "live": moment.live_bytes,
        "arena": moment.tasks.arena_bytes,
        "peak": state.peak_bytes,
        "projected": state.projected_bytes,
    }
    most = max(1, *bars.values())
    cells = max(4, width - 24)
    lines = [
        line(f"{name:10}{size_text(n):>10}  ", ("█" * round(cells * n / most), "blue")) for name, n in bars.items()
    ]
    lines += [line(), *counters(state, moment)]
    if state.latency_ms:
        times = state.latency_ms
        text = f"latency {_latency(state)}, min {min(times):.2f}, max {max(times):.2f}, {len(times)} runs"
        lines += [line(), line(text)]
    return lines
