"""Where tasks lie in the tensors that they write."""

from __future__ import annotations

import numpy as np

from brickrt.runtime.lowering.task_graph import TaskGraph


def places_of(tasks: TaskGraph) -> np.ndarray:
    """The place of each task in its tensor, from 0 to 1, float64 [tasks].

    The boxes of a tensor, in the order of its grid (batch and channels before rows), lie one behind the other, by their
    volumes. A node of a single task is at 1, with the last worker: a chain of such nodes stays on one core.
    """
    place = np.ones(len(tasks), np.float64)
    for steps in tasks.steps:  # of padded bricks the last node's boxes count
        volumes = np.maximum(steps.boxes.volumes, 1).astype(np.float64)
        middles = np.cumsum(volumes) - volumes / 2
        if len(middles) > 1:
            place[steps.tasks] = middles / volumes.sum()
    return place
