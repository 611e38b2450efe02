"""Which worker's queue a task is in: equal shares of every tensor, so that rows stay with the core that made them."""

from __future__ import annotations

import numpy as np

from brickrt.plan.geometry.bricks import row_offsets
from brickrt.runtime.lowering.task_graph import TaskGraph


def homes(tasks: TaskGraph, workers: int) -> np.ndarray:
    """The home of each task, int64 [tasks].

    The boxes of a tensor, in the order of its grid (batch and channels before rows), are shared out so that all workers
    get about the same volume. A node of a single task goes to the last worker: a chain of such nodes stays on one core.
    """
    home = np.full(len(tasks), workers - 1, np.int64)
    for steps in tasks.steps:  # of padded bricks the last node's boxes count
        volumes = np.maximum(steps.boxes.volumes, 1).astype(np.float64)
        middles = np.cumsum(volumes) - volumes / 2
        if len(middles) > 1:
            home[steps.tasks] = np.minimum(middles * workers / volumes.sum(), workers - 1).astype(np.int64)
    return home


def queues(tasks: TaskGraph, workers: int) -> tuple[np.ndarray, np.ndarray]:
    """All queues in CSR form: offsets [workers + 1], and the tasks of all queues, ascending in each."""
    home = homes(tasks, workers)
    return row_offsets(np.bincount(home, minlength=workers)), np.argsort(home, kind="stable").astype(np.int64)
