"""Traces: valid trace-event JSON whose slices are the tasks that ran, named by the model's own nodes."""

from __future__ import annotations

import io
import json
from itertools import pairwise

import numpy as np
import pytest

from brickrt.dashboard.live_tensors import live_bytes
from brickrt.dashboard.recording import GraphRun, HostRun, Recording
from brickrt.dashboard.report.trace import HOST_TRACK, trace_events, write_trace
from brickrt.runtime.events import TaskEvents


def slices(events, category=None) -> list[dict]:
    return [e for e in events if e["ph"] == "X" and (e["cat"] != "idle" if category is None else e["cat"] == category)]


def test_a_slice_per_task_and_no_time_unaccounted_for(run):
    events = list(trace_events(Recording([run])))
    tasks = slices(events)
    assert sorted(e["args"]["task"] for e in tasks) == sorted(np.flatnonzero(run.tasks.task_subgraph >= 0).tolist())
    for worker in {e["tid"] for e in tasks}:
        row = sorted((e for e in events if e["ph"] == "X" and e["tid"] == worker), key=lambda e: e["ts"])
        covered = sum(e["dur"] for e in row)
        assert covered == pytest.approx(row[-1]["ts"] + row[-1]["dur"], rel=1e-6)
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-6 for a, b in pairwise(row))


def test_tracks_are_full_from_the_first_run_to_the_end_of_the_last(run):
    e = run.events
    after = np.stack([e.task, e.start + 10**9, e.end + 10**9, e.waits, e.revisits], 1)[e.worker == e.worker[0]]
    alone = GraphRun(run.tasks, TaskEvents([after if k == e.worker[0] else after[:0] for k in range(2)]))
    events = [e for e in trace_events(Recording([run, alone])) if e["ph"] == "X"]
    ends = int(e.start.min()), int(after[:, 2].max())
    for worker in np.unique(e.worker).tolist():
        assert sum(s["dur"] for s in events if s["tid"] == worker) == pytest.approx((ends[1] - ends[0]) / 1e3)
    assert {s["name"] for s in events if s["cat"] == "idle"} == {"idle", "between runs"}


def test_slices_name_the_nodes_and_the_brick(run):
    tasks = slices(trace_events(Recording([run])))
    assert {name for e in tasks for name in e["args"]["nodes"]} >= {"first", "bend", "second <&>"}
    for e in tasks:
        lo, hi = e["args"]["brick"]
        assert len(lo) == 4 and all(a < b for a, b in zip(lo, hi))


@pytest.mark.parametrize("limit", [1, 200_000])
def test_waits_and_revisits_add_up_to_what_the_workers_counted(run, limit):
    e, tasks = run.events, slices(trace_events(Recording([run]), limit=limit))
    own = run.tasks.task_subgraph[e.task] >= 0
    for name, counted in (("waits", e.waits), ("revisits", e.revisits)):
        each = np.concatenate([np.diff(counted[e.worker == w], prepend=0) for w in np.unique(e.worker)])
        real = np.concatenate([own[e.worker == w] for w in np.unique(e.worker)])
        assert sum(s["args"][name] for s in tasks) == each[real].sum()
        assert all(0 <= s["args"][name] <= s["args"].get("tasks", 1) for s in tasks)


def test_above_the_limit_neighbours_are_one_slice(run):
    events = list(trace_events(Recording([run]), limit=1))
    few = slices(events)
    assert sum(e["args"].get("tasks", 1) for e in few) == int((run.tasks.task_subgraph >= 0).sum())
    subgraph = run.tasks.task_subgraph[run.events.task]
    rows = [row for w in np.unique(run.events.worker) for row in [*subgraph[run.events.worker == w].tolist(), -1]]
    assert len(few) == sum(row >= 0 and row != after for row, after in pairwise(rows))


def test_arrows_run_forward_in_time(run):
    ends: dict[str, dict[str, float]] = {}
    for e in trace_events(Recording([run]), arrows=True):
        if e["ph"] in "sf":
            ends.setdefault(e["id"], {})[e["ph"]] = e["ts"]
    layered = len(run.tasks.plan.subgraphs) > 1 or run.tasks.plan.subgraphs[0].strategy == "memoized"
    assert bool(ends) == layered
    assert all(set(e) == {"s", "f"} and e["s"] < e["f"] for e in ends.values())


def test_counters_end_where_they_should(run):
    counts = [e["args"] for e in trace_events(Recording([run])) if e["ph"] == "C" and e["name"] == "tasks"]
    assert counts[-1] == {"in progress": 0, "complete": len(run.events)}
    when, held = live_bytes(run)
    assert (np.diff(when) >= 0).all()
    assert held[-1:].sum() == 0
    assert (held >= 0).all() and held.max(initial=0) <= max(1, run.tasks.arena_bytes)


def test_the_file_is_json_with_every_node_and_the_host_on_a_track_of_its_own(run):
    recording = Recording([run], [HostRun("loop", recording_end(run), recording_end(run) + 1000)])
    text = io.StringIO()
    write_trace(text, recording, {"first": "subgraph 0", "gone": "folded"})
    trace = json.loads(text.getvalue())
    assert trace["otherData"]["nodes"] == {"first": "subgraph 0", "gone": "folded"}
    (host,) = slices(trace["traceEvents"], "host")
    assert host["tid"] == HOST_TRACK and host["name"] == "loop" and host["dur"] == pytest.approx(1.0)
    assert all(e.get("ts", 0) >= 0 for e in trace["traceEvents"])


def recording_end(run: GraphRun) -> int:
    return int(run.events.end.max())
