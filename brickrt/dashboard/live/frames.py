"""The dashboard's frames, as lines for a screen of a given size. Pure: nothing here touches a terminal."""

from __future__ import annotations

import statistics

from brickrt.dashboard.live.frame_state import FrameState
from brickrt.dashboard.live.lines import Span, beside, cut, fit, line, width_of
from brickrt.dashboard.live.panels import Lines, brick_map, count, counters, lanes, progress, size, table
from brickrt.dashboard.live.run_state import Moment

VIEWS = ("overview", "subgraphs", "map", "memory")
HEAD = 3  # lines above the view, and one below
MAP_WIDTH = 0.45  # of the screen, in the overview


def frame(
    scene: FrameState, width: int, height: int, view: str = "overview", paused: bool = False, note: str = ""
) -> Lines:
    """`height` lines, none wider than `width` cells. `note` is said in the last one, instead of the keys."""
    lines = [*_head(scene, width), *_body(scene, width, max(1, height - HEAD - 1), view)]
    lines = lines[: height - 1] + [line()] * (height - 1 - len(lines))
    return [fit(spans, width) for spans in (*lines, _keys(view, paused, note, width))]


def one_line(scene: FrameState) -> str:
    """Progress where there is no screen to draw on."""
    share = _share(scene)
    return f"run {min(scene.run + 1, scene.runs)} of {scene.runs}, {100 * share:.0f} %, {scene.seconds:.1f} s"


def _share(scene: FrameState) -> float:
    """How much of all runs is done."""
    moment = scene.moment
    part = moment.counts[2] / max(1, sum(moment.counts)) if moment and scene.run < scene.runs else 0.0
    return (scene.run + part) / max(1, scene.runs)


def _head(scene: FrameState, width: int) -> Lines:
    moment = scene.moment
    right = f"run {min(scene.run + 1, scene.runs)}/{scene.runs}  {_clock(scene.seconds)}"
    title = cut(scene.title, max(1, width - len(right) - 1))
    done, total = (moment.counts[2], sum(moment.counts)) if moment else (0, 0)
    rate = f"{count(done / moment.seconds)} tasks/s" if moment and done else ""
    told = f"{count(done)}/{count(total)}", rate
    tail = max(len("   ".join(told)), 26)
    return [
        line((title, "bold"), " ", right),
        progress("all runs", _share(scene), _latency(scene).ljust(tail), width),
        progress("this run", done / total if total else 0.0, "  ".join(told).ljust(tail), width),
    ]


def _latency(scene: FrameState) -> str:
    return f"median {statistics.median(scene.latency_ms):.2f} ms" if scene.latency_ms else ""


def _keys(view: str, paused: bool, note: str, width: int) -> list[Span]:
    """Where not all fits, only the view that is shown is named."""
    pause = (" p go on", "yellow") if paused else (" p pause", "dim")
    said = [("  ", ""), (note, "")] if note else [(" tab view ", "dim"), pause, ("  s save  q quit", "dim")]
    names = [(f" {name} ", "reverse" if name == view else "") for name in VIEWS]
    if width_of([*names, *said]) > width:
        names = [(f" {view} ", "reverse")]
    return line(*names, *said)


def _body(scene: FrameState, width: int, height: int, view: str) -> Lines:
    moment = scene.moment
    if moment is None:
        known = "nothing to compute" if scene.run else "waiting for the first task …"  # outputs may be constants
        return [line(f"on the host: {scene.host}" if scene.host else known)]
    if view == "subgraphs":
        return table(scene.rows, width, height, by_time=False)
    if view == "map":
        return brick_map(moment, width, height)
    if view == "memory":
        return _memory(scene, moment, width)
    return _overview(scene, moment, width, height)


def _overview(scene: FrameState, moment: Moment, width: int, height: int) -> Lines:
    top = lanes(moment, max(1, height // 5))
    if scene.host:
        top.append(line(("host      ▸ ", "magenta"), scene.host))
    figures = counters(scene, moment)
    left = max(16, int(width * MAP_WIDTH))
    rows = max(len(figures), (height - len(top)) // 2)
    upper = beside(brick_map(moment, left, rows), figures, left)
    return [*top, *upper, *table(scene.rows, width, height - len(top) - len(upper), by_time=True)]


def _memory(scene: FrameState, moment: Moment, width: int) -> Lines:
    bars = [
        ("live", moment.live_bytes),
        ("arena", moment.tasks.arena_bytes),
        ("peak", scene.held_bytes),
        ("projected", scene.projected_bytes),
    ]
    most = max([n for _, n in bars] + [1])
    cells = max(4, width - 24)
    lines = [line(f"{name:10}{size(n):>10}  ", ("█" * round(cells * n / most), "blue")) for name, n in bars]
    lines += [line(), *counters(scene, moment)]
    if scene.latency_ms:
        times = scene.latency_ms
        told = f"{_latency(scene)}, min {min(times):.2f}, max {max(times):.2f}, {len(times)} runs"
        lines += [line(), line(f"latency {told}")]
    return lines


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02}:{seconds % 60:04.1f}"
