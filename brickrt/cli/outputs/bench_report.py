"""What a comparison with other runtimes gave, as JSON and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from brickrt.cli.terminal.text import extents_text, printable, shapes_text, table
from brickrt.compare.comparison import Comparison, mean_ratio
from brickrt.compare.interleave import Spread
from brickrt.compare.machine import machine
from brickrt.compare.peers import OURS

UNCHECKED = "not finite"


def bench_dict(rows: Sequence[Comparison], rounds: int) -> dict[str, Any]:
    """The comparison as JSON has it: times in milliseconds, ratios a peer's time over that of brickrt."""
    return {
        "machine": machine(rows[0].device),
        "rounds": rounds,
        "networks": [row.to_dict() for row in rows],
        "geometric_mean": mean_ratio(rows),
    }


def network_text(row: Comparison, rounds: int) -> str:
    """One network: a line per engine, and the roofline."""
    heads = ("engine", "median ms", "min", "max", "over brickrt", "difference")
    inputs = shapes_text(row.shapes) or "no inputs"
    lines = [
        printable(f"{row.network} ({inputs}), threads: {row.threads}, rounds: {rounds}"),
        "",
        table(heads, [_engine_row(row, name) for name in row.ms], right=heads[1:]),
        "",
        _roofline_line(row),
    ]
    return "\n".join(lines)


def zoo_text(rows: Sequence[Comparison]) -> str:
    """Several networks: a line each, and the geometric mean."""
    peers = list(dict.fromkeys(name for row in rows for name in row.ratios))
    heads = ("network", "input", "brickrt ms", *peers, "difference", "over roofline")
    body = [
        (
            row.network,
            ", ".join(extents_text(shape) for shape in row.shapes.values()),
            f"{row.ms[OURS].median:.2f}",
            *(f"{row.ms[p].median:.2f} {_ratio(row.ratios[p])}" if p in row.ratios else "-" for p in peers),
            UNCHECKED if row.unchecked else f"{max(row.differences.values()):.1e}" if row.differences else "-",
            _over(row),
        )
        for row in rows
    ]
    mean = mean_ratio(rows)
    closing = [] if mean is None else [f"×{mean:.2f} is the geometric mean against each network's fastest peer"]
    return "\n".join([table(heads, body, right=heads[2:]), *closing])


def _engine_row(row: Comparison, name: str) -> tuple[str, ...]:
    times = row.ms[name]
    ratio = _ratio(row.ratios[name]) if name in row.ratios else ""
    apart = f"{row.differences[name]:.1e}" if name in row.differences else ""
    apart = UNCHECKED if name in row.unchecked else apart
    return name, f"{times.median:.3f}", f"{times.min:.3f}", f"{times.max:.3f}", ratio, apart


def _ratio(spread: Spread) -> str:
    return f"×{spread.median:.2f} ({spread.min:.2f}–{spread.max:.2f})"


def _roofline_line(row: Comparison) -> str:
    """The least time, and its parts, of which the longest counts."""
    bound = row.roofline
    levels = [f"from {level} {ms:.3g} ms" for level, ms in bound.traffic_ms.items()]
    moved = ", ".join(["", f"bytes {levels[0]}", *levels[1:]]) if levels else ""
    parts = f"arithmetic {bound.compute_ms:.3g} ms ({bound.operations / 1e9:.3g} Gop){moved}"
    return f"roofline {bound.bound_ms:.3g} ms; brickrt took {_over(row)} times that\n         {parts}"


def _over(row: Comparison) -> str:
    over = row.roofline.to_dict(row.ms[OURS].median)["over"]
    return "-" if over is None else f"{over:.2f}"
