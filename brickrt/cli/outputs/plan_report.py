"""Plans as JSON has them, and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from brickrt.cli.outputs.json_output import Json
from brickrt.cli.terminal.text import extents_text, screen_width, table
from brickrt.plan.footprint import with_footprint
from brickrt.plan.plan import Plan

FULL_PLAN_COLUMNS = 110  # of a screen, below which a plan has fewer
LEFT_OUT = ("brick", "KiB", "Δ", "ρ")  # of a plan on a narrow screen


def plan_entries(plans: Sequence[Plan]) -> list[Json]:
    """One object per subgraph; `ops` are names of ONNX nodes, `kinds` the brick operators they became."""
    return [
        {
            "stage": stage,
            "ops": plan.ops(subgraph),
            "kinds": [plan.algorithms.get(k, plan.graph.nodes[k].op.name) for k in subgraph.members],
            "output_shape": list(plan.graph.out(plan.graph.nodes[subgraph.nodes[-1]]).shape),
        }
        | with_footprint(plan.graph, subgraph)
        for stage, plan in enumerate(plans)
        for subgraph in plan.subgraphs
    ]


def plan_table(entries: Sequence[Json]) -> str:
    """What `plan_entries` gives as a table, a line per subgraph; with fewer columns on a narrow screen."""
    heads = ("#", "strategy", "ops", "output", "brick", "tasks", "Mflop", "KiB", "Δ", "ρ", "why")
    rows = [
        (
            str(number),
            e["strategy"],
            "+".join(e["kinds"]),
            extents_text(e["output_shape"]),
            extents_text(e["brick"]) if e["brick"] else "-",
            str(e["tasks"]),
            f"{e['flops'] / 1e6:.1f}",
            f"{e['footprint_bytes'] / 2**10:.0f}",
            f"{e['delta']:.1%}",
            f"{e['rho']:.3g}",
            e["why"],
        )
        for number, e in enumerate(entries)
    ]
    shown = [k for k, head in enumerate(heads) if screen_width() >= FULL_PLAN_COLUMNS or head not in LEFT_OUT]
    right, shrinks = ("#", "tasks", "Mflop", "KiB", "Δ", "ρ"), ("ops", "why")
    return table([heads[k] for k in shown], [[row[k] for k in shown] for row in rows], right, shrinks)


def fallback_lines(fallback: Mapping[str, str], took_ms: Mapping[str, float] | None = None) -> list[str]:
    """Lines for the nodes that run whole on the host: why, and the milliseconds that took if they are known."""
    took = {name: f", {ms:.3f} ms" for name, ms in (took_ms or {}).items()}
    return [f"on the host: {name} ({why}){took.get(name, '')}" for name, why in fallback.items()]
