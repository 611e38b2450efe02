"""The time of a run, shared out among the subgraphs whose tasks ran in it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from brickrt.runtime.events import TaskEvents
from brickrt.runtime.tuning.task_seconds import seconds_by_subgraph


def seconds(owners, *workers):
    """Seconds by subgraph of a run whose workers ran (task, start, end), of which `owners` are the subgraphs."""
    tasks = SimpleNamespace(task_subgraph=np.array(owners), plan=SimpleNamespace(subgraphs=(None,) * (max(owners) + 1)))
    rows = [np.array([[*ran, 0, 0] for ran in worker], np.int64).reshape(-1, 5) for worker in workers]
    return list(seconds_by_subgraph(tasks, TaskEvents(rows)) * 1e9)


def test_tasks_one_after_the_other():
    assert seconds([0, 1, 0], [(0, 10, 20), (1, 20, 25), (2, 25, 65)]) == [50, 5]


def test_a_moment_is_shared_by_what_runs_in_it():
    """Task 1 runs alone for 20 while the other worker finds nothing to do."""
    assert seconds([0, 1], [(0, 10, 20)], [(1, 10, 40)]) == [5, 25]


def test_what_leaves_a_core_idle_takes_longer():
    even = seconds([0, 0, 1, 1], [(0, 10, 20), (2, 20, 30)], [(1, 10, 20), (3, 20, 30)])
    uneven = seconds([0, 0, 1, 1], [(0, 10, 15), (2, 25, 35)], [(1, 10, 25), (3, 25, 35)])
    assert even == pytest.approx([10, 10]) and uneven == pytest.approx([15, 10])


def test_a_moment_without_tasks_counts_for_the_next():
    assert seconds([0, 1], [(0, 10, 20)], [(1, 27, 30)]) == [10, 10]


def test_tasks_that_join_others_count_nothing():
    assert seconds([0, -1, 1], [(0, 10, 20), (1, 20, 20), (2, 20, 23)]) == [10, 3]


def test_nothing_ran():
    assert seconds([0], []) == [0]


@pytest.mark.parametrize("seed", range(5))
def test_all_together_are_the_run(seed):
    """From the first task's start to the last one's end, whoever waited for whom."""
    rng, workers, number = np.random.default_rng(seed), [], 0
    for _ in range(3):
        moments = 1 + np.cumsum(rng.integers(0, 9, 40)).reshape(-1, 2)
        workers.append([(number + k, int(a), int(b)) for k, (a, b) in enumerate(moments)])
        number += len(moments)
    owners = list(rng.integers(0, 4, number))
    ran = [one for worker in workers for one in worker]
    whole = max(end for _, _, end in ran) - min(start for _, start, _ in ran)
    assert sum(seconds([*owners, 3], *workers)) == pytest.approx(whole)
