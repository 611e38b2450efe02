"""Which worker is home to a task: equal shares of every tensor, so that rows stay with the core that computed them."""

from __future__ import annotations

import numpy as np

from brickrt.runtime.lowering.task_graph import TaskGraph


def homes(tasks: TaskGraph, workers: int) -> np.ndarray:
    """The home of each task, int64 [tasks].

    A tensor's boxes in the order of its grid, batch and channels before rows, are divided by their volumes. What has
    a single task goes to the last worker: a chain of such stays on one core.
    """
    home = np.full(len(tasks), workers - 1, np.int64)
    for steps in tasks.steps:  # of padded bricks the last node's boxes count
        volumes = np.maximum(steps.boxes.volumes, 1).astype(np.float64)
        middles = np.cumsum(volumes) - volumes / 2
        if len(middles) > 1:
            home[steps.tasks] = np.minimum(middles * workers / volumes.sum(), workers - 1).astype(np.int64)
    return home


def queues(tasks: TaskGraph, workers: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each worker's queue begins and the last ends [workers + 1]; the tasks of all queues, ascending in each."""
    home = homes(tasks, workers)
    starts = np.concatenate([[0], np.cumsum(np.bincount(home, minlength=workers))])
    return starts.astype(np.int64), np.argsort(home, kind="stable").astype(np.int64)
