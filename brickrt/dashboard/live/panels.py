"""The panels of a frame, each as lines: progress, workers, the brick map, counters, the table of subgraphs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from brickrt.dashboard.figures import SubgraphFigures
from brickrt.dashboard.labels import Labels
from brickrt.dashboard.live.frame_state import FrameState
from brickrt.dashboard.live.lines import Line, cut, fit, line
from brickrt.dashboard.live.run_state import COMPLETE, RUNNING, WAITING, Lane, Moment
from brickrt.dashboard.units import count_text, size_text

GLYPHS = {WAITING: "·", RUNNING: "▒", COMPLETE: "█"}  # told apart without colour
STYLES = {WAITING: "dim", RUNNING: "yellow", COMPLETE: "green"}
STRATEGY_STYLES = {"layerwise": "blue", "padded": "yellow", "memoized": "green", "fused": "magenta"}


def progress(name: str, share: float, text: str, width: int) -> Line:
    """A line with a name, a bar, and `text` after it."""
    share = min(1.0, max(0.0, share))
    tail = f" {100 * share:3.0f} %  {text}"
    cells = max(4, width - len(name) - len(tail) - 1)
    full = round(cells * share)
    return line(f"{name} ", ("━" * full, "green"), ("─" * (cells - full), "dim"), tail)


def lanes(moment: Moment, most: int) -> list[Line]:
    """A line per worker; where there are more than `most`, the last line is about the rest together."""
    if len(moment.lanes) <= most:
        return [_lane(k, lane, moment.labels) for k, lane in enumerate(moment.lanes)]
    rest = moment.lanes[most - 1 :]
    busy = sum(lane.busy for lane in rest) / len(rest)
    shown = [_lane(k, lane, moment.labels) for k, lane in enumerate(moment.lanes[: most - 1])]
    return [*shown, line(f"and {len(rest)} more workers, {100 * busy:.0f} % busy")]


def _lane(k: int, lane: Lane, labels: Labels) -> Line:
    head = f"worker {k:<3}{100 * lane.busy:3.0f} % "
    if lane.task < 0 or labels.tasks.task_subgraph[lane.task] < 0:
        return line(head, ("idle", "dim"))
    name = labels.subgraphs[int(labels.tasks.task_subgraph[lane.task])]
    lo, hi = labels.brick(lane.task)
    box = " [" + ", ".join(f"{a}:{b}" for a, b in zip(lo, hi)) + "]"
    return line(head, ("▸ ", "yellow") if lane.running else ("✓ ", "green"), name, (box, "dim"))


def brick_map(moment: Moment, width: int, height: int) -> list[Line]:
    """The bricks of the current subgraph, coloured by state; where there are more than cells, several to a cell."""
    plan, number = moment.tasks.plan, moment.subgraph
    if not plan.subgraphs or height < 2:
        return []
    strategy = plan.subgraphs[number].strategy
    head = line((f"{strategy} ", STRATEGY_STYLES.get(strategy, "")), f"{number} {moment.labels.subgraphs[number]}")
    cells = map_cells(moment, height - 1, width)
    wide = max(1, min(2, width // cells.shape[1]))
    return [fit(head, width), *(_map_row(row, wide) for row in cells)]


def map_cells(moment: Moment, rows: int, columns: int) -> np.ndarray:
    """States of the bricks of the current subgraph's output, at most [rows, columns].

    A cell that several bricks share is waiting or complete where all of them are, and else running.
    """
    owner, y, x = moment.labels.grid(moment.subgraph)
    if not len(owner):
        return np.zeros((1, 1), np.int8)
    height, width = int(y.max()) + 1, int(x.max()) + 1
    shape = min(rows, height), min(columns, width)
    at = (y * shape[0] // height) * shape[1] + x * shape[1] // width
    states = moment.states[owner]
    total, started, done = (
        np.bincount(at[chosen], minlength=shape[0] * shape[1])
        for chosen in (slice(None), states > WAITING, states == COMPLETE)
    )
    cells = np.where(done == total, COMPLETE, np.where(started > 0, RUNNING, WAITING))
    return cells.reshape(shape).astype(np.int8)


def _map_row(row: np.ndarray, wide: int) -> Line:
    """Neighbours in the same state are one piece."""
    parts = np.split(row, np.flatnonzero(np.diff(row)) + 1)
    return line(*((GLYPHS[part[0]] * (wide * len(part)), STYLES[part[0]]) for part in parts))


def counters(state: FrameState, moment: Moment) -> list[Line]:
    """States, how tasks were found, memory, and modelled traffic."""
    waiting, running, complete = moment.counts
    recomputed = moment.tasks.recomputed
    share = 100 * recomputed / (moment.elements or 1)
    first, waits, revisits = map(count_text, (moment.complete_first, moment.waits, moment.revisits))
    return [
        line(
            (f"{GLYPHS[WAITING]} {count_text(waiting)} to do  ", STYLES[WAITING]),
            (f"{GLYPHS[RUNNING]} {running} running  ", STYLES[RUNNING]),
            (f"{GLYPHS[COMPLETE]} {count_text(complete)} done", STYLES[COMPLETE]),
        ),
        line(f"complete first {first}  waits {waits}  revisits {revisits}"),
        line(f"recomputed {count_text(recomputed)} elements ({share:.1f} %)"),
        line(f"live {size_text(moment.live_bytes)} of arena {size_text(moment.tasks.arena_bytes)}"),
        line(f"peak {size_text(state.peak_bytes)} of projected {size_text(state.projected_bytes)}"),
        *_traffic(state),
    ]


def _traffic(state: FrameState) -> list[Line]:
    """Reuse distance and bytes beyond each level of memory, beside those of the network layer by layer."""
    found = state.traffic
    if found is None:
        return []
    pairs = [("reuse dist.", found.reuse_bytes, found.layerwise_reuse_bytes)]
    pairs += [
        (f"beyond {level}", moved, found.layerwise_bytes.get(level, 0)) for level, moved in found.level_bytes.items()
    ]
    head = line((f"{'modelled':12}{'now':>10} {'layerwise':>10}", "dim"))
    return [head, *(line(f"{name:12}{size_text(now):>10} {size_text(then):>10}") for name, now, then in pairs)]


def table(rows: Sequence[SubgraphFigures], width: int, height: int, by_time: bool) -> list[Line]:
    """Subgraphs, those that took longest first where not all fit or `by_time`.

    rich.table takes 7 ms for a dozen rows, as it measures all cells first; columns of fixed width take 0.1 ms.
    """
    if height < 2:
        return []
    few = len(rows) <= height - 1
    shown = rows if few and not by_time else sorted(rows, key=lambda row: -row.busy_us)
    name = max(8, width - 66)
    head = f"{'#':>3} {'layers':{name}} {'strategy':9} {'brick':13} {'Δ':>4} {'ρ':>5}"
    head += f" {'mean ms':>7} {'share':>5} {'GF/s':>5} {'GB/s':>4}"
    return [line((head, "bold")), *(_row(row, name) for row in shown[: height - 1])]


def _row(row: SubgraphFigures, name: int) -> Line:
    brick = cut("×".join(map(str, row.brick)), 13)
    figures = f"{brick} {min(row.delta, 9.99):4.2f} {count_text(row.rho):>5} {row.busy_us / 1e3:7.2f} "
    figures += f"{100 * row.share:4.0f}% {row.gflops:5.0f} {row.gbps:4.1f}"
    strategy = f"{row.strategy:9} ", STRATEGY_STYLES.get(row.strategy, "")
    return line(f"{row.number:3} {cut(row.name, name)} ", strategy, figures)
