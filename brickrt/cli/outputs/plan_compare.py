"""The strategies side by side: modelled times, traffic and memory of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from brickrt.cli.outputs.json_output import Json
from brickrt.cli.terminal.text import table
from brickrt.dashboard.units import size_text
from brickrt.graph.ir import Graph
from brickrt.plan.options import Strategy
from brickrt.runtime.analysis.memory_projection import project
from brickrt.runtime.analysis.modelled_traffic import locality
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.progress import Progress


def compare(pipeline: Pipeline, graph: Graph, progress: Progress) -> list[Json]:
    """Per strategy: modelled time, bytes beyond each memory level, memory, and recomputation."""
    found = []
    strategies: tuple[Strategy, ...] = get_args(Strategy)
    for number, strategy in enumerate(strategies):
        progress(f"plan {strategy}", number, len(strategies))
        options = replace(pipeline.options, strategy=strategy)
        found.append(_figures(replace(pipeline, options=options, progress=None), graph))
    return found


def _figures(pipeline: Pipeline, graph: Graph) -> Json:
    plan = pipeline.plan(graph)
    tasks = pipeline.lower(plan)
    levels = locality(tasks)
    memory = project(tasks, pipeline.threads)
    elements = sum(plan.graph.out(node).size for node in plan.graph.nodes)
    return {
        "strategy": pipeline.options.strategy,
        "subgraphs": len(plan.subgraphs),
        "merged": sum(s.strategy != "layerwise" for s in plan.subgraphs),
        "tasks": len(tasks) - tasks.joins,
        "modelled_us": sum(s.modelled_us for s in plan.subgraphs),
        "level_bytes": {name: level.moved for name, level in levels.levels.items()},
        "reuse_bytes": levels.reuse_mean,
        "arena_bytes": memory.arena,
        "projected_bytes": memory.total,
        "recomputed": tasks.recomputed,
        "recomputed_share": tasks.recomputed / elements if elements else 0.0,
    }


def compare_table(entries: Sequence[Json]) -> str:
    """What `compare` gives as a table, a line per strategy."""
    levels = list(dict.fromkeys(level for e in entries for level in e["level_bytes"]))
    heads = ("strategy", "subgraphs", "merged", "tasks", "modelled ms", *(f"beyond {name}" for name in levels))
    heads += ("arena", "projected", "recomputed")
    rows = [
        (
            e["strategy"],
            str(e["subgraphs"]),
            str(e["merged"]),
            str(e["tasks"]),
            f"{e['modelled_us'] / 1e3:.3g}",
            *(size_text(e["level_bytes"][name]) if name in e["level_bytes"] else "-" for name in levels),
            size_text(e["arena_bytes"]),
            size_text(e["projected_bytes"]),
            f"{e['recomputed_share']:.1%}",
        )
        for e in entries
    ]
    return table(heads, rows, right=heads[1:])
