"""The layer graph on a plane: rows by depth, columns so that edges stay short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from brickrt.plan.plan import Plan

if TYPE_CHECKING:
    import networkx

SWEEPS = 4  # of the ordering inside rows, down and up


def draw_layers(plan: Plan) -> dict[str, Any]:
    """Nodes with column, row, label and subgraph, and edges as pairs of node numbers.

    Layered drawing after Sugiyama et al. (1981): rows are longest paths from the inputs, the order inside a row is
    that of the mean column of a node's neighbours.
    """
    import networkx  # takes a tenth of a second, which every run would pay for the few that are drawn

    layers = plan.graph.to_networkx()
    rows = [sorted(row) for row in networkx.topological_generations(layers)]
    columns = _columns(layers, rows)
    owner = {k: number for number, s in enumerate(plan.subgraphs) for k in s.members}
    nodes = [
        {
            "x": columns[k],
            "y": y,
            "op": plan.algorithms.get(k, plan.graph.nodes[k].op.name),
            "name": ", ".join(plan.graph.nodes[k].origin or (plan.graph.nodes[k].name,)),
            "shape": list(plan.graph.out(plan.graph.nodes[k]).shape),
            "subgraph": owner[k],
            "number": k,
        }
        for y, row in enumerate(rows)
        for k in row
    ]
    place = {node["number"]: at for at, node in enumerate(nodes)}
    return {"nodes": nodes, "edges": [[place[a], place[b]] for a, b in layers.edges]}


def _columns(layers: networkx.DiGraph, rows: Sequence[list[int]]) -> dict[int, float]:
    """Columns centred on 0."""
    columns = {k: float(at) for row in rows for k, at in zip(row, _centred(len(row)))}
    for sweep in range(SWEEPS):
        near = layers.pred if sweep % 2 == 0 else layers.succ
        for row in rows if sweep % 2 == 0 else reversed(rows):
            row.sort(key=lambda k: (_mean(columns, near[k]), k))
            columns |= dict(zip(row, _centred(len(row))))
    return columns


def _centred(n: int) -> list[float]:
    return [at - (n - 1) / 2 for at in range(n)]


def _mean(columns: Mapping[int, float], near: Mapping[int, Any]) -> float:
    return sum(columns[k] for k in near) / len(near) if near else 0.0
