"""The parts of a frame, each as lines: lanes of workers, the brick map, counters, the table of subgraphs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from brickrt.dashboard.labels import Labels
from brickrt.dashboard.live.frame_state import FrameState
from brickrt.dashboard.live.lines import Span, cut, fit, line
from brickrt.dashboard.live.run_state import COMPLETE, RUNNING, WAITING, Lane, Moment, SubgraphRow

Lines = list[list[Span]]
GLYPHS = {WAITING: "·", RUNNING: "▒", COMPLETE: "█"}  # told apart without colour
STYLES = {WAITING: "dim", RUNNING: "yellow", COMPLETE: "green"}
STRATEGY_STYLES = {"layerwise": "blue", "padded": "yellow", "memoized": "green"}


def progress(name: str, share: float, told: str, width: int) -> list[Span]:
    """A bar."""
    share = min(1.0, max(0.0, share))
    tail = f" {100 * share:3.0f} %  {told}"
    cells = max(4, width - len(name) - len(tail) - 1)
    full = round(cells * share)
    return line(f"{name} ", ("━" * full, "green"), ("─" * (cells - full), "dim"), tail)


def lanes(moment: Moment, most: int) -> Lines:
    """A line per worker; of many, what the rest does together."""
    if len(moment.lanes) <= most:
        return [_lane(k, lane, moment.labels) for k, lane in enumerate(moment.lanes)]
    rest = moment.lanes[most - 1 :]
    busy = sum(lane.busy for lane in rest) / len(rest)
    shown = [_lane(k, lane, moment.labels) for k, lane in enumerate(moment.lanes[: most - 1])]
    return [*shown, line(f"and {len(rest)} more workers, {100 * busy:.0f} % busy")]


def _lane(k: int, lane: Lane, labels: Labels) -> list[Span]:
    head = f"worker {k:<3}{100 * lane.busy:3.0f} % "
    if lane.task < 0 or labels.tasks.task_subgraph[lane.task] < 0:
        return line(head, ("idle", "dim"))
    name = labels.subgraphs[int(labels.tasks.task_subgraph[lane.task])]
    lo, hi = labels.brick(lane.task)
    box = " [" + ", ".join(f"{a}:{b}" for a, b in zip(lo, hi)) + "]"
    return line(head, ("▸ ", "yellow") if lane.running else ("✓ ", "green"), name, (box, "dim"))


def brick_map(moment: Moment, width: int, height: int) -> Lines:
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
    """States of the bricks of the current subgraph's output, at most [rows, columns]: of bricks that share a cell,
    not started or complete where all are, in progress else."""
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


def _map_row(row: np.ndarray, wide: int) -> list[Span]:
    ends = [*(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
    spans, start = [], 0
    for end in ends:
        state = int(row[start])
        spans.append((GLYPHS[state] * (wide * (end - start)), STYLES[state]))
        start = end
    return spans


def counters(scene: FrameState, moment: Moment) -> Lines:
    """States, how tasks were found, memory, and modelled traffic."""
    waiting, running, complete = moment.counts
    first = max(0, complete - moment.waits - moment.revisits)
    lines = [
        line(
            (f"{GLYPHS[WAITING]} {count(waiting)} to do  ", STYLES[WAITING]),
            (f"{GLYPHS[RUNNING]} {running} running  ", STYLES[RUNNING]),
            (f"{GLYPHS[COMPLETE]} {count(complete)} done", STYLES[COMPLETE]),
        ),
        line(f"first time {count(first)}  waits {count(moment.waits)}  revisits {count(moment.revisits)}"),
        line(f"recomputed {recomputed(moment.tasks.recomputed, moment.elements)}"),
        line(f"live {size(moment.live_bytes)} of arena {size(moment.tasks.arena_bytes)}"),
        line(f"peak {size(scene.held_bytes)} of projected {size(scene.projected_bytes)}"),
    ]
    return lines + traffic(scene)


def recomputed(elements: int, total: int) -> str:
    """Elements of intermediates computed more than once, and their part of all."""
    return f"{count(elements)} elements ({100 * elements / (total or 1):.1f} %)"


def traffic(scene: FrameState) -> Lines:
    """Reuse distance and bytes beyond each level of memory, beside those of the network layer by layer."""
    found = scene.locality
    if found is None:
        return []
    pairs = [("reuse dist.", found.reuse_bytes, found.layerwise_reuse_bytes)]
    pairs += [
        (f"beyond {level}", moved, found.layerwise_bytes.get(level, 0)) for level, moved in found.level_bytes.items()
    ]
    head = line((f"{'modelled':12}{'now':>10} {'layerwise':>10}", "dim"))
    return [head, *(line(f"{name:12}{size(now):>10} {size(then):>10}") for name, now, then in pairs)]


def table(rows: Sequence[SubgraphRow], width: int, height: int, by_time: bool) -> Lines:
    """Subgraphs, those that took longest first where not all fit or `by_time`."""
    if height < 2:
        return []
    few = len(rows) <= height - 1
    shown = list(rows) if few and not by_time else sorted(rows, key=lambda row: -row.ms)
    name = max(8, width - 66)
    head = f"{'#':>3} {'layers':{name}} {'strategy':9} {'brick':13} {'Δ':>4} {'ρ':>5}"
    head += f" {'ms':>7} {'share':>5} {'GF/s':>5} {'GB/s':>4}"
    return [line((head, "bold")), *(_row(row, name) for row in shown[: height - 1])]


def _row(row: SubgraphRow, name: int) -> list[Span]:
    figures = f"{cut(row.brick, 13)} {min(row.delta, 9.99):4.2f} {count(row.rho):>5} {row.ms:7.2f} "
    figures += f"{100 * row.share:4.0f}% {row.gflops:5.0f} {row.gbps:4.1f}"
    strategy = f"{row.strategy:9} ", STRATEGY_STYLES.get(row.strategy, "")
    return line(f"{row.number:3} {cut(row.name, name)} ", strategy, figures)


def count(n: float) -> str:
    """A number in at most six characters."""
    for limit, unit, divisor in ((1e9, "G", 1e9), (1e6, "M", 1e6), (1e4, "k", 1e3)):
        if n >= limit:
            return f"{n / divisor:.1f}{unit}"
    return f"{n:.0f}"


def size(nbytes: float) -> str:
    """Bytes with a unit."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} GiB"
