"""How long each subgraph of a plan took in a run of the whole network."""

from __future__ import annotations

import numpy as np

from brickrt.runtime.events import TaskEvents
from brickrt.runtime.lowering.task_graph import TaskGraph


def seconds_by_subgraph(tasks: TaskGraph, events: TaskEvents) -> np.ndarray:
    """Seconds of each subgraph, float64 [subgraphs]; together they are the run, from its first task to its last.

    A moment counts for the tasks that run then, in equal shares: a subgraph that leaves cores idle takes so much more.
    A moment in which none runs counts for the task that begins next.
    """
    owner = tasks.task_subgraph[events.task]
    real = owner >= 0  # tasks that join others do nothing
    owner, count = owner[real], int(real.sum())
    moments = np.concatenate([events.start[real], events.end[real]])
    order = np.argsort(moments, kind="stable")
    running = np.cumsum(np.where(order < count, 1, -1))[:-1]
    spans = np.diff(moments[order]).astype(np.float64)
    shares = np.concatenate([[0.0], np.cumsum(np.where(running > 0, spans / np.maximum(running, 1), 0.0))])
    place = np.empty(2 * count, np.int64)
    place[order] = np.arange(2 * count)
    took = shares[place[count:]] - shares[place[:count]]
    idle = running == 0
    beginning = order[1:][idle] % max(count, 1)
    np.add.at(took, beginning, spans[idle])
    return np.bincount(owner, took, minlength=len(tasks.plan.subgraphs)) / 1e9
