"""A plan as a tree: subgraphs with the figures behind each choice, and their layers."""

from __future__ import annotations

import math
from collections.abc import Iterator

from brickrt.cli.terminal.text import extents_text, printable
from brickrt.dashboard.labels import shorten
from brickrt.dashboard.units import size_text
from brickrt.plan.footprint import footprint
from brickrt.plan.plan import Plan, Subgraph


def plan_tree(plan: Plan) -> Iterator[str]:
    """The lines of the tree, each subgraph with its layers below."""
    for number, subgraph in enumerate(plan.subgraphs):
        last = number == len(plan.subgraphs) - 1
        yield f"{'└─' if last else '├─'} {number} {_figures(plan, subgraph)}"
        yield from (("   " if last else "│  ") + text for text in _inside(plan, subgraph))


def _figures(plan: Plan, s: Subgraph) -> str:
    brick = f", bricks {extents_text(s.brick)}" if s.brick else ""
    counts = f"Δ {s.delta:.1%}, ρ {s.rho:.3g}, {s.tasks} tasks, {s.flops / 1e6:.1f} Mflop"
    return f"{s.strategy}{brick}: {counts}, {size_text(footprint(plan.graph, s))} a brick{_modelled(s)}"


def _modelled(s: Subgraph) -> str:
    if not math.isfinite(s.modelled_us) or not s.modelled_us:
        return ""
    return f", modelled {s.modelled_us:.1f} µs (layerwise {s.layerwise_us:.1f})"


def _inside(plan: Plan, subgraph: Subgraph) -> Iterator[str]:
    yield printable(f"why: {subgraph.why}")
    for k in subgraph.members:
        node = plan.graph.nodes[k]
        branch = "└─" if k == subgraph.members[-1] else "├─"
        kind, shape = plan.algorithms.get(k, node.op.name), extents_text(plan.graph.out(node).shape)
        yield printable(f"{branch} {kind} → {shape}  {shorten(list(node.origin or (node.name,)))}")
