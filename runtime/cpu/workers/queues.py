"""Which worker's queue a task is in: equal shares of every tensor, so that rows stay with the core that made them."""

from __future__ import annotations

import numpy as np


def queues(places: np.ndarray, workers: int) -> tuple[np.ndarray, np.ndarray]:
    """All queues in CSR form: offsets [workers + 1], and the tasks of all queues, ascending in each. `places`, of
    `places_of`, is where each task lies in its tensor."""
    home = homes(places, workers)
    offsets = np.zeros(workers + 1, np.int64)
    np.cumsum(np.bincount(home, minlength=workers), out=offsets[1:])
    return offsets, np.argsort(home, kind="stable").astype(np.int64)


def homes(places: np.ndarray, workers: int) -> np.ndarray:
    """The home of each task, int64 [tasks]: workers share the volume of every tensor equally."""
    return np.minimum(places * workers, workers - 1).astype(np.int64)
