"""What the dashboard shows, as lines of text for a screen of a given size. Pure: nothing here touches a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from brickrt.dashboard.labels import Labels
from brickrt.dashboard.watching import COMPLETE, RUNNING, WAITING, Lane, Moment, Row, fold_states

VIEWS = ("overview", "subgraphs", "map", "memory")
GLYPHS = {WAITING: "·", RUNNING: "▒", COMPLETE: "█"}  # told apart without colour
STYLES = {WAITING: "bright_black", RUNNING: "yellow", COMPLETE: "green"}
STRATEGY_STYLES = {"layerwise": "blue", "padded": "yellow", "memoized": "green"}
MAP_WIDTH = 0.45  # of the screen, in the overview


@dataclass(frozen=True)
class Locality:
    """Modelled figures of the plan and of the same network layer by layer; bytes that move below each level."""

    reuse_bytes: float
    layerwise_reuse_bytes: float
    level_bytes: dict[str, int]
    layerwise_bytes: dict[str, int]


@dataclass(frozen=True)
class Scene:
    """All that one frame shows."""

    title: str
    run: int
    runs: int
    seconds: float
    moment: Moment | None
    rows: Sequence[Row] = ()
    recomputed: int = 0
    live_bytes: int = 0
    peak_bytes: int = 0
    projected_bytes: int = 0
    locality: Locality | None = None
    host: str = ""
    latency_ms: Sequence[float] = field(default_factory=tuple)


def frame(
    scene: Scene, width: int, height: int, view: str = "overview", paused: bool = False, note: str = ""
) -> list[Text]:
    """`height` lines, none wider than `width` cells. `note` is said in the last one."""
    lines = [*_head(scene, width), *_body(scene, width, max(1, height - 5), view)]
    lines = lines[: height - 1] + [Text()] * (height - 1 - len(lines))
    return [fit(line, width) for line in (*lines, _keys(view, paused, note))]


def fit(line: Text, width: int) -> Text:
    """The line cut to a number of cells; control characters of names do not reach the terminal."""
    if any(not c.isprintable() for c in line.plain):
        line = Text("".join(c if c.isprintable() else "?" for c in line.plain))
    if cell_len(line.plain) > width:
        line = line.copy()
        line.truncate(width, overflow="ellipsis")
    return line


def _head(scene: Scene, width: int) -> list[Text]:
    moment = scene.moment
    right = f"run {min(scene.run + 1, scene.runs)}/{scene.runs}  {_clock(scene.seconds)}"
    title = set_cell_size(scene.title, max(1, width - len(right) - 1))
    done, total = (moment.counts[2], sum(moment.counts)) if moment else (0, 0)
    whole = (scene.run + (done / total if total and scene.run < scene.runs else 0)) / max(1, scene.runs)
    rate = f"{_count(done / moment.seconds)} tasks/s" if moment and moment.seconds > 0 and done else ""
    return [
        Text.assemble((title, "bold"), " ", right),
        _progress("all runs", whole, "", width),
        _progress("this run", done / total if total else 0.0, f"{_count(done)}/{_count(total)} {rate}", width),
        Text(),
    ]


def _progress(name: str, share: float, told: str, width: int) -> Text:
    share = min(1.0, max(0.0, share))
    tail = f" {100 * share:3.0f} % {told}".ljust(30)
    cells = max(4, width - len(name) - len(tail) - 1)
    full = round(cells * share)
    return Text.assemble(f"{name} ", ("━" * full, "green"), ("─" * (cells - full), "bright_black"), tail)


def _keys(view: str, paused: bool, note: str) -> Text:
    names = [(f" {name} ", "reverse") if name == view else (f" {name} ", "") for name in VIEWS]
    keys = " tab view  p go on" if paused else " tab view  p pause"
    return Text.assemble(
        *names, (keys, "yellow" if paused else "bright_black"), ("  s save  q quit  ", "bright_black"), note
    )


def _body(scene: Scene, width: int, height: int, view: str) -> list[Text]:
    if scene.moment is None:
        return [Text(scene.host or "waiting for the first task …")]
    if view == "subgraphs":
        return table(scene.rows, width, height, by_time=False)
    if view == "map":
        return brick_map(scene.moment, width, height)
    if view == "memory":
        return _memory(scene, width)
    lanes = _lanes(scene.moment, width, max(1, height // 4))
    left = max(16, int(width * MAP_WIDTH))
    counters = _counters(scene)
    rows = max(len(counters), (height - len(lanes)) // 2)
    upper = side_by_side(brick_map(scene.moment, left, rows), counters, left)
    rest = height - len(lanes) - len(upper)
    return [*lanes, *upper, *table(scene.rows, width, max(0, rest), by_time=True)]


def side_by_side(left: Sequence[Text], right: Sequence[Text], width: int) -> list[Text]:
    """Two columns, the left one `width` cells wide."""
    lines = []
    for k in range(max(len(left), len(right))):
        line = fit(left[k], width).copy() if k < len(left) else Text()
        line.append(" " * (width + 2 - cell_len(line.plain)))
        lines.append(line.append_text(right[k]) if k < len(right) else line)
    return lines


# ---- parts


def _lanes(moment: Moment, width: int, most: int) -> list[Text]:
    labels = Labels(moment.tasks)
    lines = [_lane(k, lane, labels) for k, lane in enumerate(moment.lanes[:most])]
    more = len(moment.lanes) - most
    if more > 0:
        busy = sum(lane.busy for lane in moment.lanes[most:]) / more
        lines[-1] = Text(f"and {more + 1} more workers, {100 * busy:.0f} % busy")
    return lines


def _lane(k: int, lane: Lane, labels: Labels) -> Text:
    head = (f"worker {k} {100 * lane.busy:3.0f} % ", "")
    if lane.task < 0 or labels.tasks.task_subgraph[lane.task] < 0:
        return Text.assemble(head, ("idle", "bright_black"))
    name = labels.subgraphs[int(labels.tasks.task_subgraph[lane.task])]
    lo, hi = labels.brick(lane.task)
    box = " [" + ", ".join(f"{a}:{b}" for a, b in zip(lo, hi)) + "]"
    mark = ("▸ ", "yellow") if lane.running else ("✓ ", "green")
    return Text.assemble(head, mark, name, (box, "bright_black"))


def brick_map(moment: Moment, width: int, height: int) -> list[Text]:
    """The bricks of the current subgraph, coloured by state; where there are more than cells, several to a cell."""
    labels = Labels(moment.tasks)
    subgraph = moment.tasks.plan.subgraphs[moment.subgraph]
    style = STRATEGY_STYLES.get(subgraph.strategy, "")
    head = Text.assemble((f"{subgraph.strategy} ", style), f"{moment.subgraph} {labels.subgraphs[moment.subgraph]}")
    cells = _shrunk(moment.cells(), max(1, height - 1), width)
    wide = max(1, min(2, width // cells.shape[1]))
    lines = [fit(head, width)]
    for row in cells:
        line = Text()
        for state in row.tolist():
            line.append(GLYPHS[state] * wide, STYLES[state])
        lines.append(line)
    return lines


def _shrunk(cells: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """At most so many rows and columns."""
    if cells.shape[0] <= rows and cells.shape[1] <= columns:
        return cells
    shape = min(rows, cells.shape[0]), min(columns, cells.shape[1])
    y, x = np.indices(cells.shape)
    at_y, at_x = y * shape[0] // cells.shape[0], x * shape[1] // cells.shape[1]
    return fold_states(cells.reshape(-1), at_y.reshape(-1), at_x.reshape(-1), shape)


def _counters(scene: Scene) -> list[Text]:
    moment = scene.moment
    assert moment is not None
    waiting, running, complete = moment.counts
    lines = [
        Text.assemble(
            (f"{GLYPHS[WAITING]} {_count(waiting)} not started  ", STYLES[WAITING]),
            (f"{GLYPHS[RUNNING]} {running} running  ", STYLES[RUNNING]),
            (f"{GLYPHS[COMPLETE]} {_count(complete)}", STYLES[COMPLETE]),
        ),
        Text(
            f"first look {_count(complete - moment.revisits - moment.waits)}, waits {_count(moment.waits)}, "
            f"revisits {_count(moment.revisits)}"
        ),
        Text(f"recomputed {_count(scene.recomputed)} elements"),
        Text(f"memory {_size(scene.live_bytes)}, peak {_size(scene.peak_bytes)} of {_size(scene.projected_bytes)}"),
    ]
    return lines + _traffic(scene.locality)


def _traffic(locality: Locality | None) -> list[Text]:
    if locality is None:
        return []
    lines = [
        Text(f"reuse distance {_size(locality.reuse_bytes)}, layerwise {_size(locality.layerwise_reuse_bytes)}"),
    ]
    for level, moved in locality.level_bytes.items():
        lines.append(Text(f"beyond {level} {_size(moved)}, layerwise {_size(locality.layerwise_bytes.get(level, 0))}"))
    return lines


def _memory(scene: Scene, width: int) -> list[Text]:
    bars = [("live", scene.live_bytes), ("peak", scene.peak_bytes), ("projected", scene.projected_bytes)]
    most = max([n for _, n in bars] + [1])
    cells = max(4, width - 24)
    lines = [Text(f"{name:10}{_size(n):>10}  " + "█" * round(cells * n / most)) for name, n in bars]
    lines += [Text(), *_counters(scene)]
    if scene.latency_ms:
        ordered = sorted(scene.latency_ms)
        middle = ordered[len(ordered) // 2]
        lines.append(Text(f"latency median {middle:.2f} ms, min {ordered[0]:.2f}, max {ordered[-1]:.2f}"))
    return lines


def table(rows: Sequence[Row], width: int, height: int, by_time: bool) -> list[Text]:
    """Subgraphs, those that took longest first where not all fit or `by_time`."""
    if height < 2:
        return []
    shown = sorted(rows, key=lambda row: -row.ms) if by_time or len(rows) > height - 1 else list(rows)
    name = max(8, width - 66)
    head = f"{'#':>3} {'layers':{name}} {'strategy':9} {'brick':13} {'Δ':>4} {'ρ':>5}"
    head += f" {'ms':>7} {'share':>5} {'GF/s':>5} {'GB/s':>4}"
    lines = [Text(head, "bold")]
    for row in shown[: height - 1]:
        cells = set_cell_size(row.name, name)
        text = Text(f"{row.number:3} {cells} ")
        text.append(f"{row.strategy:9} ", STRATEGY_STYLES.get(row.strategy, ""))
        text.append(f"{row.brick[:13]:13} {row.delta:4.2f} {_count(row.rho):>5} {row.ms:7.2f} {100 * row.share:4.0f}% ")
        text.append(f"{row.gflops:5.0f} {row.gbps:4.1f}")
        lines.append(text)
    return lines


def _count(n: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if n >= limit:
            return f"{n / (1e3 if unit == 'k' else limit):.1f}{unit}"
    return f"{n:.0f}"


def _size(nbytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} GiB"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02}:{seconds % 60:04.1f}"
