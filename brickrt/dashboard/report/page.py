"""The report: one self-contained HTML page of what ran, where its time and bytes went, and in which order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any, TextIO

import numpy as np

from brickrt.dashboard.figures import planned_figures, subgraph_figures, workers_of
from brickrt.dashboard.labels import Labels
from brickrt.dashboard.live_tensors import live_bytes
from brickrt.dashboard.recording import GraphRun
from brickrt.dashboard.report.drawing import draw_layers
from brickrt.runtime.lowering.task_graph import TaskGraph

MOST_BARS = 8000  # of the timeline; neighbours of one subgraph are drawn as one above that
MOST_CELLS = 64 * 64  # of a heat map
Json = dict[str, Any]


def write_report(out: TextIO, runs: Sequence[GraphRun], about: Json, planned: Sequence[TaskGraph] = ()) -> None:
    """Writes the page for the watched `runs`, the last of each task graph in full, and for graphs only `planned`.

    `about` has `title` and, each a mapping of names to text, `summary` and `environment`.
    """
    page = files(__package__).joinpath("page.html").read_text("utf-8")
    # "<" would end the element that holds the data
    data = json.dumps(report_data(runs, about, planned), separators=(",", ":")).replace("<", "\\u003c")
    out.write(page.replace("{{title}}", escape(str(about["title"]))).replace("{{data}}", data))


def report_data(runs: Sequence[GraphRun], about: Json, planned: Sequence[TaskGraph] = ()) -> Json:
    """What the page shows; times in microseconds from the start of a graph's run."""
    graphs: dict[TaskGraph, list[GraphRun]] = {}
    for run in runs:
        graphs.setdefault(run.tasks, []).append(run)
    shown = [*graphs.items(), *((tasks, []) for tasks in planned)]
    return {**about, "graphs": [_graph(tasks, of_one) for tasks, of_one in shown]}


def _graph(tasks: TaskGraph, runs: Sequence[GraphRun]) -> Json:
    """One task graph, without times if it has not run."""
    last = runs[-1] if runs else None
    figures = subgraph_figures(runs) if runs else planned_figures(tasks)
    orders = (brick_order(last, k) for k in range(len(figures))) if last else ()
    return {
        "runs": len(runs),
        "workers": workers_of(last) if last else 0,
        "subgraphs": [of_one.to_dict() for of_one in figures],
        "drawing": draw_layers(tasks.plan),
        "timeline": timeline(last) if last else [],
        "memory": {"live": _live(last) if last else [], "arena": tasks.arena_bytes, "scratch": tasks.scratch_bytes},
        "order": [cells for cells in orders if cells],
    }


def timeline(run: GraphRun) -> list[list[float]]:
    """[worker, start, duration, subgraph] per task. Neighbours in a subgraph share a bar where there are many tasks."""
    e, owner = run.events, run.tasks.task_subgraph
    began = int(e.start.min(initial=np.iinfo(np.int64).max))
    bars: list[list[float]] = []
    most = -(-len(e) // MOST_BARS)
    for worker in np.unique(e.worker).tolist():
        inside = 0
        for row in np.flatnonzero((e.worker == worker) & (owner[e.task] >= 0)).tolist():
            start, end, k = (int(e.start[row]) - began) / 1e3, (int(e.end[row]) - began) / 1e3, int(owner[e.task[row]])
            joins = inside and inside < most and bars[-1][3] == k
            inside = inside + 1 if joins else 1
            if joins:
                bars[-1][2] = round(end - bars[-1][1], 3)
            else:
                bars.append([worker, round(start, 3), round(end - start, 3), k])
    return bars


def _live(run: GraphRun) -> list[list[float]]:
    """[microseconds, bytes] of the tensors stored at a time."""
    began = int(run.events.start.min(initial=np.iinfo(np.int64).max))
    return [[round((int(t) - began) / 1e3, 3), int(n)] for t, n in zip(*live_bytes(run))]


def brick_order(run: GraphRun, number: int) -> Json | None:
    """When the bricks of a subgraph's output were computed, 0 for the first to 1 for the last, as rows of cells.

    Cells are the grid along the last two cut dimensions, of the first brick along the others. None for one brick.
    """
    tasks = run.tasks
    boxes, owner = Labels(tasks).output_boxes(number)
    if len(owner) < 2:
        return None
    rank = np.empty(len(tasks))
    rank[run.events.task] = np.arange(len(run.events))
    cuts = [np.unique(boxes[:, d]) for d in range(boxes.shape[1])]
    seen = [d for d in range(boxes.shape[1]) if len(cuts[d]) > 1][-2:]
    first = np.all([boxes[:, d] == boxes[:, d].min() for d in range(boxes.shape[1]) if d not in seen], axis=0)
    at = [np.searchsorted(cuts[d], boxes[first, d]) for d in seen]
    if len(at) == 1:
        at.insert(0, np.zeros_like(at[0]))
    cells = np.zeros((int(at[0].max()) + 1, int(at[1].max()) + 1))
    when = np.argsort(np.argsort(rank[owner[first]]))
    cells[at[0], at[1]] = when / max(1, len(when) - 1)
    step = max(1, int(np.ceil(np.sqrt(cells.size / MOST_CELLS))))
    return {"subgraph": number, "cells": np.round(cells[::step, ::step], 3).tolist()}
