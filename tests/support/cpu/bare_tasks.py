"""Programs of tasks without work, and what their events must say."""

from __future__ import annotations

import numpy as np

from brickrt.graph.ir import Graph
from brickrt.plan.device.device_spec import host_device
from brickrt.plan.geometry.bricks import row_offsets
from brickrt.plan.plan import Plan
from brickrt.runtime import events
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.cpu.program import CpuProgram
from brickrt.runtime.lowering.task_graph import TaskGraph
from tests.support.task_checks import SERVER


def graph_of(rows: list[list[int]]) -> TaskGraph:
    """Tasks without steps; task t waits for `rows[t]`."""
    return TaskGraph(
        plan=Plan(Graph((), {}), {}, SERVER),
        dep_offsets=row_offsets(np.array([len(row) for row in rows], np.int64)),
        deps=np.array([d for row in rows for d in row], np.int64),
        task_subgraph=np.zeros(len(rows), np.int64),
    ).verify()


def program_of(rows: list[list[int]], threads: int) -> CpuProgram:
    """A program of tasks without work."""
    return CpuProgram.build(graph_of(rows), host_isa(host_device()), threads, arithmetic=False)


def check_run(program: CpuProgram, rows: list[list[int]]) -> events.TaskEvents:
    """Runs a program, and checks what its events and counts say."""
    n = len(rows)
    filled = events.buffers(n, program.threads)
    counts = program.run([], [], filled)
    seen = events.TaskEvents(filled)
    assert sorted(seen.task.tolist()) == list(range(n))
    assert counts.tasks == n
    assert counts.complete_first + counts.waits + counts.revisits == n
    start, end = np.empty(n, np.int64), np.empty(n, np.int64)
    start[seen.task], end[seen.task] = seen.start, seen.end
    assert (end >= start).all()
    assert all(end[d] <= start[t] for t, row in enumerate(rows) for d in row)
    assert (np.diff(seen.start) >= 0).all()
    for worker in range(program.threads):
        mine = seen.worker == worker
        assert (seen.start[mine][1:] >= seen.end[mine][:-1]).all(), "one worker, two tasks at a time"
        assert (np.diff(seen.waits[mine]) >= 0).all()
        assert (np.diff(seen.revisits[mine]) >= 0).all()
    return seen
