"""Frames of a run in bounded memory, as lines for a screen of a given size. Pure: nothing here touches a terminal."""

from __future__ import annotations

from brickrt.dashboard.live.frames import DashboardFrames, key_line
from brickrt.dashboard.live.lines import Line, cut, fit, line
from brickrt.dashboard.live.panels import progress
from brickrt.dashboard.live.stream_watch import StreamState
from brickrt.dashboard.units import size_text, time_text
from brickrt.runtime.stream.stream_report import StreamProgress

STREAM_VIEWS = ("overview", "passes")
BARS = "▁▂▃▄▅▆▇█"
LABEL = 10  # cells before a chart
FIGURES = 6  # lines of figures between passes and chart


def stream_frame(
    state: StreamState, width: int, height: int, view: str = "overview", paused: bool = False, note: str = ""
) -> list[Line]:
    """`height` lines, each `width` cells wide. `note` is said in the last one, instead of the keys."""
    body = max(0, height - 4)
    lines = [*_stream_head(state, width), line()]
    if view == "passes":
        lines += pass_lines(state, width, body)
    else:
        lines += pass_lines(state, width, max(1, body // 4))
        lines += [line(), *_figures(state), *memory_lines(state, width, height - 1 - len(lines) - FIGURES)]
    lines = lines[: height - 1] + [line()] * (height - 1 - len(lines))
    keys = key_line(STREAM_VIEWS, view, paused, note, width, "q end")
    return [fit(spans, width) for spans in (*lines, keys)]


def stream_line(state: StreamState) -> str:
    """Progress where there is no screen to draw on."""
    told = state.told
    if told is None:
        return f"{state.step or 'planning'}, {state.seconds:.1f} s"
    return f"{state.parts} {told.bands} of {told.all_bands}, {100 * _done(state):.0f} %, {state.seconds:.1f} s"


def progress_text(told: StreamProgress) -> str:
    """The same beside a bar."""
    where = f"pass {told.sweep + 1}/{told.sweeps}, " if told.sweeps > 1 else ""
    moved = f"{size_text(told.bytes_read)} read, {size_text(told.bytes_written)} written"
    left = "" if told.left_s is None else f", {time_text(told.left_s)} left"
    return f"{where}row {told.rows}/{told.all_rows}, {moved}{left}"


STREAM_FRAMES = DashboardFrames(STREAM_VIEWS, stream_frame, stream_line)


def _done(state: StreamState) -> float:
    return state.told.bands / max(1, state.told.all_bands) if state.told else 0.0


def _stream_head(state: StreamState, width: int) -> list[Line]:
    clock = f"{int(state.seconds) // 60:02}:{state.seconds % 60:04.1f}"
    told, title = state.told, cut(state.title, max(1, width - len(clock) - 1))
    if told is None:
        return [line((title, "bold"), " ", clock), line(state.step or "planning"), line()]
    left = "" if told.left_s is None else f"{time_text(told.left_s)} left"
    parts = f"{told.bands}/{told.all_bands} {state.parts}  {left}".ljust(34)
    rows = f"row {told.rows}/{told.all_rows}".ljust(34)
    return [
        line((title, "bold"), " ", clock),
        progress(f"all {state.parts}".ljust(12), _done(state), parts, width),
        progress("this pass".ljust(12), told.rows / max(1, told.all_rows), rows, width),
    ]


def pass_lines(state: StreamState, width: int, most: int) -> list[Line]:
    """A line for each pass; where there are more than `most`, those about the one under way."""
    names, here = state.passes, state.told.sweep if state.told else 0
    first = min(max(0, here - most // 2), max(0, len(names) - most))
    shown = range(first, min(len(names), first + most))
    wide = max((len(names[k]) for k in shown), default=0)
    return [_pass_line(state, k, here, wide, width) for k in shown]


def _pass_line(state: StreamState, number: int, here: int, wide: int, width: int) -> Line:
    """Which rows of a pass are done."""
    told = state.told
    share = 0.0 if told is None or number > here else 1.0 if number < here else told.rows / max(1, told.all_rows)
    seconds = f"{state.pass_s[number]:8.1f} s" if number in state.pass_s else " " * 10
    cells = max(4, width - wide - len(seconds) - 2)
    full = round(cells * share)
    style = "yellow" if number == here and told is not None else "green"
    return line(f"{state.passes[number]:{wide}} ", ("█" * full, style), ("·" * (cells - full), "dim"), seconds)


def _figures(state: StreamState) -> list[Line]:
    """Workers, files and memory, in FIGURES lines with the ones between."""
    told = state.told
    read, written = (told.bytes_read, told.bytes_written) if told else (0, 0)
    share = 100 * min(1.0, state.busy / max(1, state.threads))
    now = state.memory[-1][1] if state.memory else 0
    return [
        line(f"{'workers':{LABEL}}{state.busy:.1f} of {state.threads} busy, {share:.0f} %"),
        line(f"{'read':{LABEL}}{size_text(read):>10}   {size_text(state.reading)}/s"),
        line(f"{'written':{LABEL}}{size_text(written):>10}   {size_text(state.writing)}/s"),
        line(
            f"{'memory':{LABEL}}{size_text(now):>10} now, {size_text(state.peak)} peak, {size_text(state.projected)} "
            f"projected, {size_text(state.limit)} allowed"
        ),
        line(),
    ]


def memory_lines(state: StreamState, width: int, height: int) -> list[Line]:
    """Memory over time, from the beginning to now, up to the limit; a line where the projection is."""
    cells, rows = width - LABEL, min(height, 12)
    if rows < 2 or cells < 8 or not state.memory or not state.limit:
        return []
    columns = _columns(state, cells)
    filled = [round(len(BARS) * rows * min(1.0, nbytes / state.limit)) for nbytes in columns]
    at = rows - 1 - min(rows - 1, int(rows * min(1.0, state.projected / state.limit)))  # of the projection, from above
    labels = {rows - 1: "0", at: "projected", 0: "allowed"}
    style = "red" if state.peak > state.limit else "blue"
    return [_chart_row(filled, rows - 1 - row, row in (0, at), labels.get(row, ""), style) for row in range(rows)]


def _columns(state: StreamState, cells: int) -> list[int]:
    """The most bytes in each of so many equal parts of the time; where there is no sample, those of the part before."""
    most = [0] * cells
    for second, nbytes in state.memory:
        k = min(cells - 1, int(cells * second / max(state.seconds, 1e-9)))
        most[k] = max(most[k], nbytes)
    for k in range(1, cells):
        most[k] = most[k] or most[k - 1]
    return most


def _chart_row(filled: list[int], row: int, ruled: bool, label: str, style: str) -> Line:
    """One row of a chart, counted from below; `ruled` draws a line behind it."""
    empty = "┄" if ruled else " "
    levels = [min(len(BARS), max(0, n - row * len(BARS))) for n in filled]
    pieces: list[tuple[str, str]] = []
    for level in levels:
        glyph, look = (BARS[level - 1], style) if level else (empty, "dim")
        if pieces and pieces[-1][1] == look:
            pieces[-1] = pieces[-1][0] + glyph, look
        else:
            pieces.append((glyph, look))
    return line((f"{label:{LABEL}}", "dim"), *pieces)
