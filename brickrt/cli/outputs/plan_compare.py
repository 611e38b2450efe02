"""The strategies side by side: what the models say of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from brickrt.cli.requests import Strategy
from brickrt.cli.terminal.text import size_text, table
from brickrt.graph.ir import Graph
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import make_plan
from brickrt.runtime.analysis.memory_projection import project
from brickrt.runtime.analysis.modelled_traffic import locality
from brickrt.runtime.lowering.lower import lower
from brickrt.runtime.progress import Progress
from brickrt.runtime.thread_count import thread_count

Compared = dict[str, Any]


def compare(graph: Graph, device: DeviceSpec, options: PlanOptions, progress: Progress) -> list[Compared]:
    """Per strategy: modelled time, bytes beyond each memory level, memory, and recomputation."""
    found = []
    for number, strategy in enumerate(Strategy):
        progress(f"plan {strategy.value}", number, len(Strategy))
        found.append(_figures(graph, device, replace(options, strategy=strategy.value)))
    return found


def _figures(graph: Graph, device: DeviceSpec, options: PlanOptions) -> Compared:
    plan = make_plan(graph, device, options)
    tasks = lower(plan)
    levels = locality(tasks)
    memory = project(tasks, thread_count(None))
    elements = sum(plan.graph.out(node).size for node in plan.graph.nodes)
    return {
        "strategy": options.strategy,
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


def compare_table(entries: Sequence[Compared]) -> str:
    """A line per strategy."""
    levels = list(entries[0]["level_bytes"])
    heads = ("strategy", "subgraphs", "merged", "tasks", "modelled ms", *(f"beyond {name}" for name in levels))
    heads += ("intermediates", "memory", "recomputed")
    rows = [
        (
            e["strategy"],
            str(e["subgraphs"]),
            str(e["merged"]),
            str(e["tasks"]),
            f"{e['modelled_us'] / 1e3:.3g}",
            *(size_text(e["level_bytes"][name]) for name in levels),
            size_text(e["arena_bytes"]),
            size_text(e["projected_bytes"]),
            f"{e['recomputed_share']:.1%}",
        )
        for e in entries
    ]
    return table(heads, rows, right=heads[1:])
