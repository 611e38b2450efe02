"""Helper threads: every job done once, whoever leads; what no helper comes to is the leader's; queues and homes."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from brickrt.runtime.cpu.workers.compiled_mailbox import compiled_mailbox
from brickrt.runtime.cpu.workers.pinning import cores
from brickrt.runtime.cpu.workers.queues import homes, queues
from brickrt.runtime.cpu.workers.task_places import places_of
from brickrt.runtime.cpu.workers.thread_pool import Jobs, ThreadPool, thread_pool
from tests.support.cpu.bare_tasks import check_run, graph_of, program_of
from tests.support.programs import forks

pytestmark = pytest.mark.timeout(120, method="thread")

FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def jobs_of(function, n: int) -> tuple[Jobs, object]:
    """`n` jobs that call function(k, 7), and what must live as long as they do."""
    callback = FUNCTION(function)
    address = ctypes.cast(callback, ctypes.c_void_p).value or 0
    return Jobs([(address, k, 7) for k in range(n)]), callback


@pytest.mark.parametrize("n", [1, 2, 5])
def test_jobs_that_meet_are_all_done(n):
    """All wait for each other, so that none can be taken back."""
    seen, meeting = [], threading.Barrier(n)

    def work(k, seven):
        meeting.wait()
        seen.append((k or 0, seven))

    jobs, _held = jobs_of(work, n)
    for _ in range(3):
        seen.clear()
        thread_pool(compiled_mailbox).run(jobs)
        assert sorted(seen) == [(k, 7) for k in range(n)]


def test_several_leaders_have_helpers_of_their_own():
    together, apart = threading.Barrier(6), ThreadPool(compiled_mailbox())

    def lead(_):
        jobs, held = jobs_of(lambda k, seven: together.wait() and None, 2)
        apart.run(jobs)
        return held

    with ThreadPoolExecutor(3) as pool:
        assert len(list(pool.map(lead, range(3)))) == 3


def test_helpers_that_slept_wake_up():
    rows = [[] if t < 4 else [t - 4] for t in range(40)]
    program = program_of(rows, 3)
    for _ in range(4):
        check_run(program, rows)
        threading.Event().wait(0.02)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not pin threads")
def test_helpers_have_a_core_each_where_there_are_enough():
    """The caller stays where it may be; a second run at once, and more threads than cores, go anywhere."""
    before, usable = os.sched_getaffinity(0), set(cores().values())
    seen: list[set[int]] = []
    meeting = threading.Barrier(len(usable))

    def work(k, seven):
        meeting.wait()
        seen.append(os.sched_getaffinity(0))

    jobs, _held = jobs_of(work, len(usable))
    ThreadPool(compiled_mailbox()).run(jobs)
    assert os.sched_getaffinity(0) == before
    pinned = [next(iter(cpus)) for cpus in seen if len(cpus) == 1 and cpus != before]
    assert len(pinned) == len(set(pinned)) == (len(usable) - 1)
    assert set(pinned) <= usable


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_starts_threads_of_its_own_and_processes_end():
    """In a process without threads, since a fork of this one would have its threads' locks."""
    code = (
        "import os, sys\n"
        "from tests.support.cpu.bare_tasks import program_of\n"
        "program = program_of([[], [0], [0], [1, 2]], 3)\n"
        "assert program.run([], []).tasks == 4\n"
        "child = os.fork()\n"
        "assert program.run([], []).tasks == 4\n"
        "sys.exit(0) if child == 0 else None\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    assert forks.run(["-c", code]).returncode == 0


def test_queues_hold_every_task_once_in_order():
    tasks = graph_of([[] if t == 0 else [t - 1] for t in range(17)])
    starts, queue = queues(places_of(tasks), 4)
    assert sorted(queue.tolist()) == list(range(17))
    assert all((np.diff(queue[a:b]) > 0).all() for a, b in itertools.pairwise(starts))
    assert set(homes(places_of(tasks), 4).tolist()) == {3}, "tasks without boxes are all at one home"
