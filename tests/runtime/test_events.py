"""What a watcher of a run is given."""

from __future__ import annotations

import numpy as np

from brickrt.plan.device.device_spec import host_device
from brickrt.runtime import events
from brickrt.runtime.cpu.compile.host_isa import host_isa
from brickrt.runtime.cpu.program import CpuProgram
from tests.support.graphs.plan_graphs import bottlenecks
from tests.support.task_checks import lowered, with_values


def test_rows_are_gathered_by_time():
    first, second = events.buffers(3, 2)
    first[0] = [2, 50, 60, 1, 4]
    second[0] = [0, 10, 20, 0, 0]
    second[1] = [1, 70, 80, 2, 5]
    seen = events.TaskEvents([first, second])
    assert len(seen) == 3
    assert seen.task.tolist() == [0, 2, 1]
    assert seen.worker.tolist() == [1, 0, 1]
    assert seen.start.tolist() == [10, 50, 70]
    assert seen.end.tolist() == [20, 60, 80]
    assert (seen.waits.tolist(), seen.revisits.tolist()) == ([0, 1, 2], [0, 4, 5])


def test_trimmed_rows_say_the_same():
    filled = events.buffers(1000, 2)
    filled[1][0] = [7, 50, 60, 1, 4]
    seen = events.TaskEvents(filled)
    seen.trim()
    filled[1][0] = 0
    assert (seen.task.tolist(), seen.worker.tolist(), seen.end.tolist()) == ([7], [1], [60])


def test_nothing_ran():
    assert len(events.TaskEvents(events.buffers(4, 2))) == 0
    assert len(events.TaskEvents(events.buffers(0, 1))) == 0


def test_every_task_of_a_plan_is_reported_once_whoever_runs_it():
    graph, _ = with_values(bottlenecks(1, size=8, channels=4))
    tasks = lowered(graph, "memoized", host_device(), brick=4)
    program = CpuProgram.build(tasks, host_isa(host_device()), 3, arithmetic=False)
    ends = [[np.zeros(graph.types[n].shape, np.float32) for n in names] for names in (graph.inputs, graph.outputs)]
    for _ in range(2):
        filled = events.buffers(len(tasks), 3)
        program.run(*ends, filled)
        seen = events.TaskEvents(filled)
        assert sorted(seen.task.tolist()) == list(range(len(tasks)))
        assert set(seen.worker.tolist()) <= {0, 1, 2}
        assert (seen.end >= seen.start).all()
