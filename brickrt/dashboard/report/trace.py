"""Trace-event JSON of watched runs, for Perfetto (ui.perfetto.dev) or chrome://tracing.

One process, one track per worker, one for nodes that ran on the host. On a worker's track a slice is a task, named by
its ONNX nodes; `args` hold its number, subgraph, strategy, all ONNX nodes, the box of the output ([lo, hi]), whether
the worker waited for it (`waits`), and whether it passed over others for it (`revisits`). Slices of category "idle" are
the time between tasks and between runs. Counters: `live bytes` of stored intermediate tensors, `tasks` in progress and
complete. With `arrows`, flow events lead from each task to those that wait for it. `otherData.nodes` says of every ONNX
node where it ran.

Above `limit` slices, neighbouring tasks of one worker and one subgraph are drawn as one: `args.tasks` counts them.

Format: "Trace Event Format", Google, 2016.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

import numpy as np

from brickrt.dashboard.labels import Labels
from brickrt.dashboard.live_tensors import live_bytes
from brickrt.dashboard.recording import GraphRun, Recording

PROCESS = 1
HOST_TRACK = 1000  # behind all workers
MOST_SLICES = 200_000  # some 60 MB
Event = dict[str, Any]


def write_trace(
    out: TextIO,
    recording: Recording,
    where: Mapping[str, str],
    arrows: bool = False,
    limit: int = MOST_SLICES,
) -> None:
    """Writes the trace. `where` says of every ONNX node what became of it: "subgraph 3", "folded", "host"."""
    out.write('{"displayTimeUnit": "ms", "otherData": ')
    json.dump({"nodes": dict(where)}, out)
    out.write(', "traceEvents": [\n')
    for number, event in enumerate(trace_events(recording, arrows, limit)):
        out.write((",\n" if number else "") + json.dumps(event))
    out.write("\n]}\n")


def trace_events(recording: Recording, arrows: bool = False, limit: int = MOST_SLICES) -> Iterator[Event]:
    """All events of a recording; times are microseconds since it began."""
    began = recording.began
    total = sum(len(run.events) for run in recording.graphs)
    yield _named("process_name", 0, "brickrt")
    workers = sorted({int(w) for run in recording.graphs for w in np.unique(run.events.worker)})
    for worker in workers:
        yield _named("thread_name", worker, f"worker {worker}")
    if recording.hosts:
        yield _named("thread_name", HOST_TRACK, "host")
    labels = {id(run.tasks): Labels(run.tasks) for run in recording.graphs}
    ended = 0
    for number, run in enumerate(recording.graphs):
        if not len(run.events):
            continue
        first, last = int(run.events.start.min()), int(run.events.end.max())
        for worker in workers:
            if ended and first > ended:
                yield _slice("between runs", "idle", worker, ended - began, first - began, {})
            yield from _slices(run, labels[id(run.tasks)], worker, (began, first, last), -(-total // max(1, limit)))
        ended = last
        yield from _counters(run, began)
        if arrows and total <= limit:
            yield from _arrows(run, number, began)
    for host in recording.hosts:
        yield _slice(host.name, "host", HOST_TRACK, host.start - began, host.end - began, {"nodes": [host.name]})


def _named(kind: str, track: int, name: str) -> Event:
    return {"name": kind, "ph": "M", "pid": PROCESS, "tid": track, "args": {"name": name}}


def _slice(name: str, category: str, track: int, start: int, end: int, args: Event) -> Event:
    times = {"ts": start / 1e3, "dur": (end - start) / 1e3}
    return {"name": name, "cat": category, "ph": "X", "pid": PROCESS, "tid": track, **times, "args": args}


def _slices(run: GraphRun, labels: Labels, worker: int, times: tuple[int, int, int], most: int) -> Iterator[Event]:
    """The tasks of a worker, at most `most` of them in one slice, and the gaps between; `times` are when the recording
    began, and when the run began and ended."""
    e, (began, free, last) = run.events, times
    mine = np.flatnonzero(e.worker == worker)
    rows = mine[run.tasks.task_subgraph[e.task[mine]] >= 0]
    steps = {"waits": _steps(e.waits, mine), "revisits": _steps(e.revisits, mine)}
    for group in _groups(run.tasks.task_subgraph[e.task[rows]], most):
        members = rows[group]
        start, end = int(e.start[members[0]]), int(e.end[members[-1]])
        if start > free:
            yield _slice("idle", "idle", worker, free - began, start - began, {})
        found = {name: int(counts[members].sum()) for name, counts in steps.items()}
        yield _task_slice(run, labels, members, began, found)
        free = end
    if last > free:
        yield _slice("idle", "idle", worker, free - began, last - began, {})


def _steps(counted: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """What each task added to what one worker, whose tasks are `rows`, had counted by then; 0 for others' tasks."""
    added = np.zeros(len(counted), np.int64)
    added[rows] = np.diff(counted[rows], prepend=0)
    return added


def _groups(subgraphs: np.ndarray, most: int) -> Iterator[slice]:
    """Runs of neighbours in one subgraph, of at most `most`."""
    ends = [*(np.flatnonzero(np.diff(subgraphs)) + 1).tolist(), len(subgraphs)]
    start = 0
    for end in ends:
        for at in range(start, end, most):
            yield slice(at, min(at + most, end))
        start = end


def _task_slice(run: GraphRun, labels: Labels, members: np.ndarray, began: int, found: Event) -> Event:
    e, task = run.events, int(run.events.task[members[0]])
    number = int(run.tasks.task_subgraph[task])
    subgraph = run.tasks.plan.subgraphs[number]
    args: Event = {"task": task, "subgraph": number, "strategy": subgraph.strategy, "nodes": labels.nodes[number]}
    if len(members) > 1:
        args["tasks"] = len(members)
    else:
        args["brick"] = labels.brick(task)
    start, end = int(e.start[members[0]]) - began, int(e.end[members[-1]]) - began
    return _slice(labels.subgraphs[number], subgraph.strategy, int(e.worker[members[0]]), start, end, args | found)


def _counters(run: GraphRun, began: int) -> Iterator[Event]:
    for when, held in zip(*live_bytes(run), strict=True):
        yield _counter("live bytes", int(when) - began, {"stored": int(held)})
    changes = np.concatenate([run.events.start, run.events.end])
    order = np.argsort(changes, kind="stable")
    done = np.cumsum(order >= len(run.events))
    busy = np.cumsum(np.where(order >= len(run.events), -1, 1))
    step = max(1, len(order) // 1000)  # a curve of a thousand points is as smooth as a screen
    for k in range(0, len(order), step):
        at = int(changes[order[k]]) - began
        yield _counter("tasks", at, {"in progress": int(busy[k]), "complete": int(done[k])})


def _counter(name: str, at: int, values: Event) -> Event:
    return {"name": name, "ph": "C", "pid": PROCESS, "ts": at / 1e3, "args": values}


def _arrows(run: GraphRun, which: int, began: int) -> Iterator[Event]:
    """From the end of every task to the start of those that wait for it itself, not for a join."""
    e, tasks = run.events, run.tasks
    row = np.full(len(tasks), -1, np.int64)
    row[e.task] = np.arange(len(e))
    for reader in np.flatnonzero(tasks.task_subgraph >= 0).tolist():
        for number in range(tasks.dep_offsets[reader], tasks.dep_offsets[reader + 1]):
            ends = row[tasks.deps[number]], row[reader]
            if min(ends) < 0 or tasks.task_subgraph[tasks.deps[number]] < 0:
                continue
            for phase, at, when in (("s", ends[0], e.end[ends[0]] - 1), ("f", ends[1], e.start[ends[1]])):
                flow = {"name": "needs", "cat": "dependency", "ph": phase, "id": f"{which}.{number}", "pid": PROCESS}
                yield flow | {"tid": int(e.worker[at]), "ts": (int(when) - began) / 1e3, "bp": "e"}
