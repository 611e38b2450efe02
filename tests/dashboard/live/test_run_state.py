"""The state of runs under way, from the rows that workers fill in."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.dashboard.live.panels import map_cells, table
from brickrt.dashboard.live.run_state import COMPLETE, RUNNING, WAITING, RunState
from brickrt.runtime import events
from tests.dashboard.live.half_runs import half, rows_of


def test_states_and_counts_follow_the_rows(run):
    moment = half(run).moment()
    own = run.tasks.task_subgraph >= 0
    assert sum(moment.counts) == own.sum()
    assert moment.counts[1] <= 2 and (moment.states == RUNNING).sum() == 1
    assert moment.lanes[0].running and not moment.lanes[1].running
    run_state = RunState()
    run_state.began(run.tasks, rows_of(run))
    whole = run_state.moment()
    assert whole.counts == (0, 0, own.sum()) and whole.live_bytes == 0
    assert (map_cells(whole, 10, 10) == COMPLETE).all()
    run_state.began(run.tasks, events.buffers(len(run.tasks), 2))
    assert run_state.moment().counts == (own.sum(), 0, 0)
    assert (map_cells(run_state.moment(), 10, 10) == WAITING).all()


def test_looking_often_sees_the_same_as_looking_once(run):
    filled, often = rows_of(run), events.buffers(len(run.tasks), 2)
    run_state = RunState()
    run_state.began(run.tasks, often)
    for k in range(max(map(len, filled))):
        for some, rows in zip(often, filled):
            some[k : k + 1, :2] = rows[k : k + 1, :2]
            run_state.moment()
            some[k : k + 1] = rows[k : k + 1]
    run_state.moment()
    once = RunState()
    once.began(run.tasks, filled)
    np.testing.assert_array_equal(run_state.moment().states, once.moment().states)
    assert run_state.moment().counts == once.moment().counts


def test_the_map_joins_bricks_where_cells_are_few(run):
    moment = half(run).moment()
    small, large = map_cells(moment, 2, 2), map_cells(moment, 100, 100)
    assert small.shape <= (2, 2) and large.size >= small.size
    assert set(np.unique(small)) <= {WAITING, RUNNING, COMPLETE}
    if (large == WAITING).any() and (large == COMPLETE).any():
        assert (map_cells(moment, 1, 1) == RUNNING).all()


def test_times_are_means_of_the_runs_that_ended(run):
    run_state = RunState()
    for _ in range(2):
        run_state.began(run.tasks, rows_of(run))
        run_state.ended(run.tasks, run.events)
    moment = run_state.moment()
    rows = run_state.rows(moment.labels)
    assert sum(row.share for row in rows) == pytest.approx(1)
    took = (run.events.end - run.events.start)[run.tasks.task_subgraph[run.events.task] >= 0].sum() / 1e6
    assert sum(row.busy_us for row in rows) / 1e3 == pytest.approx(took)
    assert all(row.gbps > 0 for row in rows if row.busy_us)
    assert len(table(rows, 80, 2, by_time=True)) == 2


def test_runs_that_nobody_looks_at_are_not_read(run):
    run_state = RunState()
    for _ in range(5):
        run_state.began(run.tasks, rows_of(run))
        run_state.ended(run.tasks, run.events)
    assert run_state.last is None
    first, second = run_state.moment(), run_state.moment()
    assert first is second and first.counts[2] == (run.tasks.task_subgraph >= 0).sum()
    assert first.seconds > 0 and sum(row.busy_us for row in run_state.rows(first.labels)) > 0
