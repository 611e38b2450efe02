"""The strategies side by side: modelled times, traffic and memory of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from brickrt.cli.layerwise_traffic import mean_reuse, moved_bytes
from brickrt.cli.outputs.json_output import Json
from brickrt.cli.terminal.text import table
from brickrt.dashboard.units import size_text
from brickrt.graph.ir import Graph
from brickrt.plan.options import strategies_of
from brickrt.runtime.analysis.memory_projection import project
from brickrt.runtime.analysis.modelled_traffic import locality
from brickrt.runtime.pipeline import Pipeline
from brickrt.runtime.progress import Progress


def compare(pipeline: Pipeline, graphs: Sequence[Graph], progress: Progress) -> list[Json]:
    """Per strategy, for all stages of a model: modelled time, bytes beyond each memory level, memory, and
    recomputation."""
    found = []
    strategies = strategies_of(pipeline.engine.spec)
    for number, strategy in enumerate(strategies):
        progress(f"plan {strategy}", number, len(strategies))
        rules = pipeline.options.rules if strategy == "auto" else "model"
        options = replace(pipeline.options, strategy=strategy, rules=rules)
        found.append(_figures(replace(pipeline, options=options, progress=None), graphs))
    return found


def _figures(pipeline: Pipeline, graphs: Sequence[Graph]) -> Json:
    plans = [pipeline.plan(graph) for graph in graphs]
    tasks = [pipeline.lower(plan) for plan in plans]
    subgraphs = [subgraph for plan in plans for subgraph in plan.subgraphs]
    found, memory = [locality(each) for each in tasks], [project(each, pipeline.threads) for each in tasks]
    elements = sum(plan.graph.out(node).size for plan in plans for node in plan.graph.nodes)
    recomputed = sum(each.recomputed for each in tasks)
    return {
        "strategy": pipeline.options.strategy,
        "subgraphs": len(subgraphs),
        "merged": sum(s.strategy != "layerwise" for s in subgraphs),
        "tasks": sum(len(each) - each.joins for each in tasks),
        "modelled_us": sum(s.modelled_us for s in subgraphs),
        "level_bytes": moved_bytes(found),
        "reuse_bytes": mean_reuse(found),
        "arena_bytes": sum(each.arena for each in memory),
        "projected_bytes": sum(each.total for each in memory),
        "recomputed": recomputed,
        "recomputed_share": recomputed / elements if elements else 0.0,
    }


def compare_table(entries: Sequence[Json]) -> str:
    """What `compare` gives as a table, a line per strategy; `again` is the share of elements that are recomputed."""
    levels = list(dict.fromkeys(level for e in entries for level in e["level_bytes"]))
    heads = ("strategy", "subgraphs", "tasks", "modelled ms", *(f"beyond {name}" for name in levels))
    heads += ("projected", "again")
    rows = [
        (
            e["strategy"],
            str(e["subgraphs"]),
            str(e["tasks"]),
            f"{e['modelled_us'] / 1e3:.3g}",
            *(size_text(e["level_bytes"][name]) if name in e["level_bytes"] else "-" for name in levels),
            size_text(e["projected_bytes"]),
            f"{e['recomputed_share']:.1%}",
        )
        for e in entries
    ]
    return table(heads, rows, right=heads[1:])
